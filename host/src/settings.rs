//! What an operator sets, beside the URI: by hand or in the environment.

use std::fmt;

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
    given: Vec<(String, String)>,
    environment: Vec<(String, String)>,
}

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
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| name.starts_with(MELTANO_PREFIX) || name.starts_with(OUR_PREFIX))
            .collect();
        Settings {
            given: Vec::new(),
            environment,
        }
    }

    /// Gives one setting. The last of two with one name counts.
    pub fn set(mut self, name: impl Into<String>, value: impl Into<String>) -> Settings {
        self.given.push((name.into(), value.into()));
        self
    }

    /// The settings for one plugin under one of its schemes, the more important ones later.
    pub(crate) fn for_plugin(
        &self,
        scheme: &str,
        description: &Description,
    ) -> Vec<(String, String)> {
        let ours = format!("{OUR_PREFIX}{}_", variable_part(scheme));
        let from_environment = description.settings.iter().filter_map(|setting| {
            let value = self
                .variable(&format!("{ours}{}", variable_part(&setting.name)))
                .or_else(|| self.variable(&setting.env))?;
            Some((setting.name.clone(), value.to_owned()))
        });
        let given = self.given.iter().filter(|(_, value)| !value.is_empty());
        from_environment.chain(given.cloned()).collect()
    }

    fn variable(&self, wanted: &str) -> Option<&str> {
        self.environment
            .iter()
            .find(|(name, value)| name == wanted && !value.is_empty())
            .map(|(_, value)| value.as_str())
    }
}

/// A scheme or a setting's name as a part of a variable's: in upper case, with `_` for what a name can't hold.
pub(crate) fn variable_part(name: &str) -> String {
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
        let names = |pairs: &[(String, String)]| {
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
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        }
    }

    /// What a plugin makes of the list: the last one with the name counts.
    fn value(settings: &Settings, name: &str) -> Option<String> {
        settings
            .for_plugin("store", &description())
            .into_iter()
            .rev()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value)
    }

    #[test]
    fn given_wins_over_our_variable_which_wins_over_meltanos() {
        let meltano = ("MELTANO_STATE_BACKEND_STORE_HOST", "meltano");
        let ours = ("PIPELINE_STATE_STORE_HOST", "ours");
        assert_eq!(value(&settings(&[]), "host"), None);
        assert_eq!(value(&settings(&[meltano]), "host").unwrap(), "meltano");
        assert_eq!(value(&settings(&[meltano, ours]), "host").unwrap(), "ours");
        let given = settings(&[meltano, ours])
            .set("host", "first")
            .set("host", "given");
        assert_eq!(value(&given, "host").unwrap(), "given");
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
