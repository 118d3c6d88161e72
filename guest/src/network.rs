//! What a request that got no whole answer means.

use crate::error::{Effect, Error, Failure, Outcome};

/// How a request broke off, as far as the host tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The host's policy does not allow the request.
    Denied,
    /// Nobody listens there.
    Refused,
    /// The name of the server is not known.
    UnknownName,
    /// There is no way to the server.
    Unreachable,
    /// Connecting took too long.
    ConnectTimeout,
    /// The server's certificate can't be trusted.
    Certificate,
    /// The server does not accept the client's certificate, or wants one.
    ClientCertificate,
    /// No TLS could be agreed on.
    Tls,
    /// The request was not sent for another reason, before anything was.
    NotSent,
    /// The server took the request and did not answer in time, or stopped in the middle.
    AnswerTimeout,
    /// The connection broke after the request may have been sent.
    Interrupted,
    /// The answer is larger than anything that was asked for can be.
    TooLarge,
}

impl Broken {
    /// Whether the next try may well succeed. A time-out is none: it has taken its time already.
    pub(crate) fn is_passing(self) -> bool {
        matches!(
            self,
            Self::Refused | Self::Unreachable | Self::NotSent | Self::Interrupted
        )
    }

    /// Whether nothing of the request can have reached the server.
    pub(crate) fn before_sending(self) -> bool {
        !matches!(
            self,
            Self::AnswerTimeout | Self::Interrupted | Self::TooLarge
        )
    }

    pub(crate) fn error(self, origin: &str, effect: Effect) -> Error {
        let message = match self {
            Self::Denied => format!("the host does not allow requests to {origin}"),
            Self::Refused => format!(
                "nothing listens at {origin}; check the host and the port, and that ClickHouse runs"
            ),
            Self::UnknownName => {
                format!("the host name of {origin} is not known; check how it is written")
            }
            Self::Unreachable => {
                format!("{origin} can't be reached; check the host, the port and the network")
            }
            // A server without TLS may take the handshake for a request and wait for the rest of it.
            Self::ConnectTimeout if origin.starts_with("https:") => format!(
                "{origin} did not accept a TLS connection in time; check the host, firewalls between, and that the port speaks TLS"
            ),
            Self::ConnectTimeout => format!(
                "{origin} did not accept a connection in time; check the host and firewalls between"
            ),
            Self::Certificate => format!("the certificate of {origin} is not trusted"),
            Self::ClientCertificate => format!(
                "{origin} refuses the client's certificate, or the lack of one; check which one it asks for"
            ),
            Self::Tls => format!(
                "{origin} does not speak TLS as expected; check the port and the setting `secure`"
            ),
            Self::NotSent => format!("the request to {origin} could not be sent"),
            Self::AnswerTimeout => format!("{origin} did not answer in time"),
            Self::Interrupted => format!(
                "the connection to {origin} broke before the answer was there; check the port and the setting `secure` if it always does"
            ),
            Self::TooLarge => {
                format!("{origin} answered with more than fits; ask for fewer states at once")
            }
        };
        let outcome = match self.before_sending() {
            true => Outcome::NotApplied,
            false => effect.uncertain(),
        };
        let failure = Failure { message, outcome };
        match self {
            Self::ConnectTimeout | Self::AnswerTimeout => Error::TimedOut(failure),
            _ => Error::Unavailable(failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_have_been_sent_leaves_a_question_open() {
        for (broken, sent) in [
            (Broken::Denied, false),
            (Broken::Refused, false),
            (Broken::ConnectTimeout, false),
            (Broken::Tls, false),
            (Broken::NotSent, false),
            (Broken::AnswerTimeout, true),
            (Broken::Interrupted, true),
        ] {
            let (Error::Unavailable(failure) | Error::TimedOut(failure)) =
                broken.error("http://h:1", Effect::Once)
            else {
                panic!();
            };
            assert_eq!(failure.outcome == Outcome::Unknown, sent, "{broken:?}");
            assert!(
                failure.message.contains("http://h:1"),
                "{}",
                failure.message
            );
        }
    }

    #[test]
    fn a_read_leaves_none_open() {
        let Error::TimedOut(failure) = Broken::AnswerTimeout.error("x", Effect::Read) else {
            panic!()
        };
        assert_eq!(failure.outcome, Outcome::NotApplied);
    }
}
