//! A password: how it travels, and how it is taken out of texts that others wrote, since servers and plugins may echo what
//! they were sent.
//!
//! Our own messages never need that: they are written without secrets in the first place.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use zeroize::Zeroizing;

/// A password, that shows itself to nobody but who asks for it by name, and leaves nothing in memory behind it.
///
/// ```
/// use pipeline_state_secret::Password;
///
/// let password = Password::new("hunter2".to_owned());
/// assert_eq!(format!("{password:?}"), "Password");
/// assert_eq!(password.redact("`hunter2` is wrong", "app"), "`[redacted]` is wrong");
/// ```
#[derive(Clone)]
pub struct Password(Zeroizing<String>);

/// A shorter password is only replaced where it stands as a word of its own: to replace each `a` of a
/// message would tell the password instead of hiding it.
const SHORT: usize = 4;

const MARK: &str = "[redacted]";

impl Password {
    /// Takes it over.
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The value of the header `Authorization` (RFC 7617).
    pub fn authorization(&self, user: &str) -> Zeroizing<String> {
        let encoded = STANDARD.encode(&*self.with(user));
        Zeroizing::new(format!("Basic {}", &*Zeroizing::new(encoded)))
    }

    fn with(&self, user: &str) -> Zeroizing<String> {
        Zeroizing::new(format!("{user}:{}", &*self.0))
    }

    /// `text` without the password and without the forms in which it travels.
    pub fn redact(&self, text: &str, user: &str) -> String {
        let plain = &*self.0;
        if plain.is_empty() {
            return text.to_owned();
        }
        let both = self.with(user);
        let mut forms = [
            STANDARD.encode(&*both),
            STANDARD_NO_PAD.encode(&*both),
            STANDARD.encode(plain),
            STANDARD_NO_PAD.encode(plain),
            utf8_percent_encode(plain, NON_ALPHANUMERIC).to_string(),
            url::form_urlencoded::byte_serialize(plain.as_bytes()).collect(),
            // As SQL and JSON quote it.
            plain.replace('\\', "\\\\").replace('\'', "\\'"),
            plain.replace('\\', "\\\\").replace('"', "\\\""),
            plain.clone(),
        ]
        .map(Zeroizing::new);
        // The longest first: a form may hold a shorter one.
        forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
        forms
            .iter()
            .fold(text.to_owned(), |text, form| replace(&text, form))
    }
}

impl From<Zeroizing<String>> for Password {
    fn from(text: Zeroizing<String>) -> Self {
        Self(text)
    }
}

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password")
    }
}

fn replace(text: &str, secret: &str) -> String {
    if secret.len() >= SHORT {
        return text.replace(secret, MARK);
    }
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(secret) {
        result.push_str(before);
        let part_of_a_word = result
            .chars()
            .next_back()
            .is_some_and(char::is_alphanumeric)
            || after.chars().next().is_some_and(char::is_alphanumeric);
        result.push_str(if part_of_a_word { secret } else { MARK });
        rest = after;
    }
    result.push_str(rest);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redact(password: &str, text: &str) -> String {
        Password::new(password.to_owned()).redact(text, "app")
    }

    #[test]
    fn a_password_is_replaced_in_each_of_its_forms() {
        let plain = "p@ss/w'ord+1 \\x";
        let authorization = Password::new(plain.to_owned()).authorization("app");
        let authorization = &*authorization;
        let text = format!(
            "a {plain} b p%40ss%2Fw%27ord%2B1%20%5Cx c p%40ss%2Fw%27ord%2B1+%5Cx d {authorization} e p@ss/w\\'ord+1 \\\\x f"
        );
        assert_eq!(
            redact(plain, &text),
            "a [redacted] b [redacted] c [redacted] d Basic [redacted] e [redacted] f"
        );
    }

    #[test]
    fn a_short_password_is_replaced_as_a_word_only() {
        assert_eq!(
            redact("r", "reader: r is wrong (r)"),
            "reader: [redacted] is wrong ([redacted])"
        );
    }

    #[test]
    fn without_a_password_nothing_is_replaced() {
        assert_eq!(redact("", "Basic YXBwOg=="), "Basic YXBwOg==");
    }

    #[test]
    fn debug_shows_nothing() {
        assert_eq!(
            format!("{:?}", Password::new("hunter2".to_owned())),
            "Password"
        );
    }
}
