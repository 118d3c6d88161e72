//! Which store is meant: the URI and the settings, from the arguments and the environment.

use crate::failure::{Code, Failure};

/// The variables that may hold the URI; the first one that is set counts.
const URI_VARIABLES: [&str; 2] = ["PIPELINE_STATE_URI", "MELTANO_STATE_BACKEND_URI"];
const OUR_PREFIX: &str = "PIPELINE_STATE_";
/// A plugin names its own variables, so without a limit it could ask for anything that stands in the environment.
const PREFIXES: [&str; 2] = ["MELTANO_STATE_BACKEND_", OUR_PREFIX];

/// What the plugin says of itself, as far as it matters here.
pub(crate) struct Plugin {
    pub(crate) schemes: Vec<String>,
    /// Name and variable of each setting.
    pub(crate) settings: Vec<(String, String)>,
}

/// The target of the contract.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) uri: String,
    /// The more important ones later.
    pub(crate) settings: Vec<(String, String)>,
}

impl Target {
    /// The URI: `--uri`, else a variable. A setting: `--setting`, else `PIPELINE_STATE_<SCHEME>_<NAME>`, else the plugin's variable.
    pub(crate) fn new(
        uri: Option<&str>,
        given: &[(String, String)],
        environment: &[(String, String)],
        plugin: &Plugin,
    ) -> Result<Target, Failure> {
        let uri = uri
            .filter(|uri| !uri.is_empty())
            .or_else(|| {
                URI_VARIABLES
                    .iter()
                    .find_map(|name| variable(environment, name))
            })
            .ok_or_else(|| {
                Failure::new(
                    Code::MissingSetting,
                    format!(
                        "no URI is given; use --uri, or the variable {} (`wasmtime run --env NAME` hands it on)",
                        URI_VARIABLES.join(" or ")
                    ),
                )
            })?;
        let scheme = scheme(uri)?;
        if !plugin.schemes.contains(&scheme) {
            return Err(Failure::new(
                Code::UnknownScheme,
                format!(
                    "no plugin serves the scheme `{scheme}`; there are: {}",
                    plugin.schemes.join(", ")
                ),
            ));
        }
        let ours = format!("{OUR_PREFIX}{}_", variable_part(&scheme));
        let mut settings: Vec<(String, String)> = Vec::new();
        for (name, theirs) in &plugin.settings {
            let own = format!("{ours}{}", variable_part(name));
            for variable in [theirs, &own] {
                settings.extend(values(environment, variable, name));
            }
        }
        settings.extend(given.iter().filter(|(_, value)| !value.is_empty()).cloned());
        Ok(Target {
            uri: uri.to_owned(),
            settings,
        })
    }
}

/// The error quotes nothing of the URI: without a scheme, its first part may be a password.
fn scheme(uri: &str) -> Result<String, Failure> {
    uri.split_once("://")
        .map(|(scheme, _)| scheme)
        .filter(|scheme| {
            scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
        })
        .map(str::to_ascii_lowercase)
        .ok_or_else(|| {
            Failure::usage(
                "the URI has no scheme; it must look like scheme://user:password@host:port/name",
            )
        })
}

fn variable<'a>(environment: &'a [(String, String)], name: &str) -> Option<&'a str> {
    environment
        .iter()
        .find(|(known, value)| known == name && !value.is_empty())
        .map(|(_, value)| value.as_str())
}

/// The settings that a variable gives: one, or, where names end in `*`, one for each variable that begins so.
fn values(environment: &[(String, String)], wanted: &str, setting: &str) -> Vec<(String, String)> {
    let stem = wanted.strip_suffix('*').zip(setting.strip_suffix('*'));
    let name = |found: &str| match stem {
        None => (found == wanted).then(|| setting.to_owned()),
        Some((wanted, setting)) => found
            .strip_prefix(wanted)
            .filter(|rest| !rest.is_empty())
            .map(|rest| format!("{setting}{}", rest.to_ascii_lowercase())),
    };
    environment
        .iter()
        .filter(|(found, value)| {
            !value.is_empty() && PREFIXES.iter().any(|prefix| found.starts_with(prefix))
        })
        .filter_map(|(found, value)| Some((name(found)?, value.clone())))
        .collect()
}

/// A scheme or a setting's name as a part of a variable's: in upper case, with `_` for what a name can't hold, but for a `*` at
/// its end.
fn variable_part(name: &str) -> String {
    let (stem, star) = match name.strip_suffix('*') {
        Some(stem) => (stem, "*"),
        None => (name, ""),
    };
    let part = |c: char| match c {
        c if c.is_ascii_alphanumeric() => c.to_ascii_uppercase(),
        _ => '_',
    };
    stem.chars().map(part).collect::<String>() + star
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    fn target(
        uri: Option<&str>,
        given: &[(&str, &str)],
        environment: &[(&str, &str)],
    ) -> Result<Target, Failure> {
        let plugin = Plugin {
            schemes: vec!["my-store".to_owned()],
            settings: pairs(&[
                ("host", "MELTANO_STATE_BACKEND_MY_HOST"),
                ("extra_*", "MELTANO_STATE_BACKEND_MY_EXTRA_*"),
                ("greedy", "AWS_SECRET_ACCESS_KEY"),
            ]),
        };
        Target::new(uri, &pairs(given), &pairs(environment), &plugin)
    }

    /// What a plugin makes of the list: the last one with the name counts.
    fn value(given: &[(&str, &str)], environment: &[(&str, &str)], name: &str) -> Option<String> {
        let target = target(Some("my-store://h"), given, environment).unwrap();
        let mut settings = target.settings.into_iter().rev();
        settings
            .find(|(known, _)| known == name)
            .map(|(_, value)| value)
    }

    #[test]
    fn the_uri_is_the_first_one_that_is_not_empty() {
        let both = [
            ("MELTANO_STATE_BACKEND_URI", "my-store://meltano"),
            ("PIPELINE_STATE_URI", "My-Store://ours"),
        ];
        let uri = |given, environment| target(given, &[], environment).unwrap().uri;
        assert_eq!(uri(Some("my-store://given"), &both), "my-store://given");
        assert_eq!(uri(Some(""), &both), "My-Store://ours");
        let empty = [("PIPELINE_STATE_URI", ""), both[0]];
        assert_eq!(uri(None, &empty), "my-store://meltano");
        assert_eq!(
            target(None, &[], &[]).unwrap_err().code,
            Code::MissingSetting
        );
    }

    #[test]
    fn a_scheme_that_nobody_serves_is_told_and_a_password_is_not() {
        let error = target(Some("redis://me:secret@h"), &[], &[]).unwrap_err();
        assert_eq!(error.code, Code::UnknownScheme);
        assert_eq!(
            error.line(),
            "error: no plugin serves the scheme `redis`; there are: my-store"
        );
        let error = target(Some("secret"), &[], &[]).unwrap_err();
        assert_eq!(error.code, Code::Usage);
        assert!(!error.line().contains("secret"));
    }

    #[test]
    fn given_wins_over_our_variable_which_wins_over_the_plugins() {
        let theirs = ("MELTANO_STATE_BACKEND_MY_HOST", "theirs");
        let ours = ("PIPELINE_STATE_MY_STORE_HOST", "ours");
        assert_eq!(value(&[], &[ours, theirs], "host").unwrap(), "ours");
        let given = [("host", "given"), ("host", "")];
        assert_eq!(value(&given, &[ours], "host").unwrap(), "given");
        let empty = ("PIPELINE_STATE_MY_STORE_HOST", "");
        assert_eq!(value(&[], &[empty, theirs], "host").unwrap(), "theirs");
    }

    #[test]
    fn a_name_that_ends_in_an_asterisk_stands_for_all_that_begin_so() {
        let environment = [
            ("MELTANO_STATE_BACKEND_MY_EXTRA_A_B", "1"),
            ("PIPELINE_STATE_MY_STORE_EXTRA_A_B", "2"),
            ("MELTANO_STATE_BACKEND_MY_EXTRA_", "3"),
        ];
        assert_eq!(value(&[], &environment, "extra_a_b").unwrap(), "2");
        assert_eq!(value(&[], &environment, "extra_"), None);
    }

    #[test]
    fn a_plugin_gets_no_variable_that_is_not_meant_for_one() {
        let environment = [("AWS_SECRET_ACCESS_KEY", "x")];
        assert_eq!(value(&[], &environment, "greedy"), None);
    }
}
