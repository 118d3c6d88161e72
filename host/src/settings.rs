//! What an operator sets, beside the URI: by hand or in the environment.

use std::fmt;

use zeroize::Zeroizing;

use crate::plugin::Description;

/// Settings for a plugin, by the names that it declares: `host`, `user`, `table` ...
///
/// The value of a setting is, in this order: the one given with [`Settings::set`]; with
/// [`Settings::from_env`], the variable `PIPELINE_STATE_<SCHEME>_<NAME>`, then the one that the plugin
/// declares, `MELTANO_STATE_BACKEND_<SCHEME>_<NAME>`; what the URI says; the plugin's default. An empty
/// value counts as none. That settings win over the URI is Meltano's rule.
///
/// ```
/// use pipeline_state::Settings;
///
/// let settings = Settings::from_env().set("table", "state_eu").set("password", "secret");
/// assert!(!format!("{settings:?}").contains("secret"));
/// ```
#[derive(Clone, Default)]
pub struct Settings {
    given: Vec<(String, Secret)>,
    environment: Vec<(String, Secret)>,
}

/// Any value may be one.
type Secret = Zeroizing<String>;

/// What the names of the variables that a plugin may be given start with. A plugin names its own variables,
/// so without a limit it could ask for anybody's secrets.
pub(crate) const MELTANO_PREFIX: &str = "MELTANO_STATE_BACKEND_";
const OUR_PREFIX: &str = "PIPELINE_STATE_";

impl Settings {
    /// No settings, and none from the environment.
    pub fn new() -> Settings {
        Settings::default()
    }

    /// The settings of the process's environment as it is now. Variables that are not Unicode are passed over.
    pub fn from_env() -> Settings {
        Settings::from_variables(std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        }))
    }

    /// The settings of these variables, in place of the process's environment: for programs that read variables from files too.
    ///
    /// ```
    /// use pipeline_state::Settings;
    ///
    /// let read = [(String::from("MELTANO_STATE_BACKEND_CLICKHOUSE_TABLE"), String::from("state_eu"))];
    /// let settings = Settings::from_variables(read);
    /// assert!(format!("{settings:?}").contains("CLICKHOUSE_TABLE"));
    /// ```
    pub fn from_variables(variables: impl IntoIterator<Item = (String, String)>) -> Settings {
        let environment = variables
            .into_iter()
            .filter(|(name, _)| name.starts_with(MELTANO_PREFIX) || name.starts_with(OUR_PREFIX))
            .map(|(name, value)| (name, Secret::new(value)))
            .collect();
        Settings {
            given: Vec::new(),
            environment,
        }
    }

    /// Gives one setting. The last of two with one name counts.
    pub fn set(mut self, name: impl Into<String>, value: impl Into<String>) -> Settings {
        self.given.push((name.into(), Secret::new(value.into())));
        self
    }

    /// The settings for one plugin under one of its schemes, the more important ones later. `defaults` are what an operator sets
    /// for all targets of it.
    pub(crate) fn for_plugin(
        &self,
        scheme: &str,
        description: &Description,
        defaults: &Settings,
    ) -> Vec<(String, Secret)> {
        let ours = format!("{OUR_PREFIX}{}_", variable_part(scheme));
        // The more important ones later.
        let from_environment = description.settings.iter().flat_map(|setting| {
            let own = format!("{ours}{}", variable_part(&setting.name));
            [setting.env.clone(), own]
                .into_iter()
                .flat_map(|variable| self.values(&variable, &setting.name))
        });
        let given = |settings: &Settings| {
            let given = settings.given.iter().filter(|(_, value)| !value.is_empty());
            given.cloned().collect::<Vec<_>>()
        };
        let defaults = given(defaults).into_iter();
        defaults
            .chain(from_environment)
            .chain(given(self))
            .collect()
    }

    /// The settings that a variable gives: one, or, where names end in `*`, one for each variable that begins so.
    fn values(&self, variable: &str, setting: &str) -> Vec<(String, Secret)> {
        let stem = variable.strip_suffix('*').zip(setting.strip_suffix('*'));
        let name = |found: &str| match stem {
            None => (found == variable).then(|| setting.to_owned()),
            Some((variable, setting)) => found
                .strip_prefix(variable)
                .filter(|rest| !rest.is_empty())
                .map(|rest| format!("{setting}{}", rest.to_ascii_lowercase())),
        };
        self.environment
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .filter_map(|(found, value)| Some((name(found)?, value.clone())))
            .collect()
    }
}

/// A scheme or a setting's name as a part of a variable's: in upper case, with `_` for what a name can't hold, but
/// for a `*` at its end.
pub(crate) fn variable_part(name: &str) -> String {
    if let Some(stem) = name.strip_suffix('*') {
        return format!("{}*", variable_part(stem));
    }
    name.chars()
        .map(|c| match c {
            'a'..='z' => c.to_ascii_uppercase(),
            'A'..='Z' | '0'..='9' => c,
            _ => '_',
        })
        .collect()
}

/// Shows names alone: any value may be a secret.
impl fmt::Debug for Settings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |pairs: &[(String, Secret)]| {
            pairs
                .iter()
                .map(|(name, _)| name.clone())
                .collect::<Vec<_>>()
        };
        out.debug_struct("Settings")
            .field("given", &names(&self.given))
            .field("environment", &names(&self.environment))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::tests::description;

    fn settings(environment: &[(&str, &str)]) -> Settings {
        Settings {
            given: Vec::new(),
            environment: environment
                .iter()
                .map(|(name, value)| ((*name).to_owned(), Secret::new((*value).to_owned())))
                .collect(),
        }
    }

    /// What a plugin makes of the list: the last one with the name counts.
    fn value(settings: &Settings, name: &str) -> Option<String> {
        settings
            .for_plugin(
                "store",
                &description(),
                &Settings::new().set("host", "default"),
            )
            .into_iter()
            .rev()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.to_string())
    }

    #[test]
    fn given_wins_over_our_variable_which_wins_over_meltanos() {
        let meltano = ("MELTANO_STATE_BACKEND_STORE_HOST", "meltano");
        let ours = ("PIPELINE_STATE_STORE_HOST", "ours");
        assert_eq!(value(&settings(&[]), "host").unwrap(), "default");
        assert_eq!(value(&settings(&[meltano]), "host").unwrap(), "meltano");
        assert_eq!(value(&settings(&[meltano, ours]), "host").unwrap(), "ours");
        let given = settings(&[meltano, ours])
            .set("host", "first")
            .set("host", "given");
        assert_eq!(value(&given, "host").unwrap(), "given");
    }

    #[test]
    fn a_name_that_ends_in_an_asterisk_stands_for_all_that_begin_so() {
        let any = settings(&[
            ("MELTANO_STATE_BACKEND_STORE_EXTRA_A_B", "1"),
            ("PIPELINE_STATE_STORE_EXTRA_A_B", "2"),
            ("MELTANO_STATE_BACKEND_STORE_EXTRA_", "3"),
        ]);
        assert_eq!(value(&any, "extra_a_b").unwrap(), "2");
        assert_eq!(value(&any, "extra_"), None);
        assert_eq!(variable_part("a-b*"), "A_B*");
    }

    #[test]
    fn an_empty_value_counts_as_none() {
        let empty = settings(&[
            ("MELTANO_STATE_BACKEND_STORE_HOST", "meltano"),
            ("PIPELINE_STATE_STORE_HOST", ""),
        ])
        .set("host", "");
        assert_eq!(value(&empty, "host").unwrap(), "meltano");
    }

    #[test]
    fn a_setting_that_the_plugin_does_not_declare_reaches_it_only_when_given() {
        let odd = settings(&[("MELTANO_STATE_BACKEND_STORE_ODD", "1")]);
        assert_eq!(value(&odd, "odd"), None);
        assert_eq!(value(&odd.set("odd", "2"), "odd").unwrap(), "2");
    }
}
