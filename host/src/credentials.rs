//! Who the store is to take the caller for, and what proves it. The host keeps both: a plugin is given stand-ins, and its requests
//! get the header `Authorization` on their way to the target's origin.

use bytes::Bytes;
use http::HeaderValue;
use pipeline_state_secret::Password;
use zeroize::Zeroizing;

use crate::{Error, text};

/// What a plugin sees where a user or a password was given.
pub(crate) const STAND_IN: &str = "sealed";

/// What of a target is nobody's business. No Debug: it holds passwords.
pub(crate) struct Secrets {
    user: Zeroizing<String>,
    /// The password first, then the values of all settings that are sensitive.
    passwords: Vec<Password>,
    /// None where the plugin sends what it needs itself, or neither user nor password is given.
    authorization: Option<HeaderValue>,
}

impl Secrets {
    /// `authorize`: whether requests are to get the header.
    pub(crate) fn new(
        user: Option<Zeroizing<String>>,
        password: Option<Zeroizing<String>>,
        sensitive: Vec<Zeroizing<String>>,
        authorize: bool,
    ) -> Result<Secrets, Error> {
        let given = user.is_some() || password.is_some();
        let user = user.unwrap_or_default();
        let password = Password::from(password.unwrap_or_default());
        let authorization = (given && authorize)
            .then(|| header(&password.authorization(&user)))
            .transpose()?;
        let passwords = std::iter::once(password)
            .chain(sensitive.into_iter().map(Password::from))
            .collect();
        Ok(Secrets {
            user,
            passwords,
            authorization,
        })
    }

    pub(crate) fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }

    /// A text of a plugin or a server as it may be shown: one line, without any of it.
    pub(crate) fn redact(&self, text: &str) -> String {
        let redact = |text: String, password: &Password| password.redact(&text, &self.user);
        // Before it is shortened: half of a password would not be found.
        text::line(&self.passwords.iter().fold(text.to_owned(), redact))
    }
}

/// Marked, so that nothing shows it, and overwritten when the last request that has it is gone.
fn header(authorization: &Zeroizing<String>) -> Result<HeaderValue, Error> {
    let bytes = Zeroizing::new(authorization.as_bytes().to_vec());
    let mut value = HeaderValue::from_maybe_shared(Bytes::from_owner(bytes)).map_err(|_| {
        Error::InvalidInput("the user and the password make no HTTP header".to_owned())
    })?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Option<Zeroizing<String>> {
        Some(Zeroizing::new(text.to_owned()))
    }

    #[test]
    fn requests_get_the_header_where_anything_is_given_and_the_host_sends_it() {
        let header = |user, password, authorize| {
            let secrets = Secrets::new(user, password, Vec::new(), authorize).unwrap();
            let value = secrets.authorization()?;
            assert!(value.is_sensitive());
            Some(value.to_str().unwrap().to_owned())
        };
        assert_eq!(
            header(secret("app"), secret("sekret"), true).unwrap(),
            "Basic YXBwOnNla3JldA=="
        );
        assert_eq!(header(secret("app"), None, true).unwrap(), "Basic YXBwOg==");
        assert_eq!(header(None, secret("x"), true).unwrap(), "Basic Ong=");
        assert_eq!(header(None, None, true), None);
        assert_eq!(header(secret("app"), secret("sekret"), false), None);
    }

    #[test]
    fn all_that_is_sensitive_is_taken_out_of_texts() {
        let sensitive = vec![Zeroizing::new("token-1".to_owned())];
        let secrets = Secrets::new(secret("app"), secret("sekret"), sensitive, true).unwrap();
        assert_eq!(
            secrets.redact("app: sekret, token-1, YXBwOnNla3JldA=="),
            "app: [redacted], [redacted], [redacted]"
        );
    }
}
