//! What an answer means: a result, or which error of the contract.
//!
//! ClickHouse tells an error by the status, by the header `X-ClickHouse-Exception-Code`, and by the text
//! `Code: N. DB::Exception: words (NAME) (version ...)`. One that comes after the first byte of a result stands
//! behind it, after a line `__exception__` and the tag that a header gave.

use crate::connection::Connection;
use crate::error::{Effect, Error, Failure, Outcome, ServerError, one_line};
use crate::network::Broken;
use crate::sql::Answer;

/// One answer.
#[derive(Debug, Default)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// `X-ClickHouse-Exception-Code`.
    pub(crate) exception_code: Option<String>,
    /// `X-ClickHouse-Exception-Tag`.
    pub(crate) exception_tag: Option<String>,
    /// Whether there is any header that only ClickHouse sends.
    pub(crate) from_clickhouse: bool,
    /// `X-ClickHouse-Format`.
    pub(crate) format: Option<String>,
    pub(crate) body: Vec<u8>,
    pub(crate) ending: Ending,
}

/// How a body ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It is all there.
    #[default]
    Whole,
    /// It is longer than was wanted; the rest was not read.
    Cut,
    /// The connection broke, which is also how ClickHouse ends an answer behind an exception's words.
    Broken(Broken),
}

/// The codes that something here depends on; the names are ClickHouse's.
pub(crate) mod code {
    pub(crate) const NO_SUCH_COLUMN: i32 = 16;
    pub(crate) const TABLE_ALREADY_EXISTS: i32 = 57;
    pub(crate) const UNKNOWN_TABLE: i32 = 60;
    pub(crate) const UNKNOWN_DATABASE: i32 = 81;
    pub(crate) const DATABASE_ALREADY_EXISTS: i32 = 82;
    pub(crate) const UNFINISHED: i32 = 341;
    pub(crate) const VIOLATED_CONSTRAINT: i32 = 469;

    pub(super) const TIMEOUT_EXCEEDED: i32 = 159;
    pub(super) const READONLY: i32 = 164;
    pub(super) const SOCKET_TIMEOUT: i32 = 209;
    pub(super) const ACCESS_DENIED: i32 = 497;
    pub(super) const KEEPER_EXCEPTION: i32 = 999;
    /// Unknown user, wrong password, password required; then, since 20.x, all three in one.
    pub(super) const NOT_AUTHENTICATED: [i32; 4] = [192, 193, 194, 516];
    /// After these an insert may be stored all the same: the server was interrupted, or lost sight of it
    /// (TIMEOUTs, NETWORK_ERROR, ABORTED, UNEXPECTED_ZOOKEEPER_ERROR, UNKNOWN_STATUS_OF_INSERT, UNFINISHED,
    /// QUERY_WAS_CANCELLED, KEEPER_EXCEPTION).
    pub(super) const UNCERTAIN: [i32; 9] = [159, 209, 210, 236, 244, 319, 341, 394, 999];
    /// With these an insert is refused before any row of it is stored: names, syntax, settings, rights, limits. After
    /// any other one a row may be stored, since a materialized view behind the table may be what failed.
    pub(crate) const BEFORE_ANY_ROW: [i32; 11] =
        [16, 47, 62, 81, 115, 164, 202, 242, 252, 452, 497];
    /// After these another try may well succeed: too many queries (202) or parts (252) at once, a replica that is
    /// read-only (242) or behind (286), Keeper out of reach or out of step (225, 244, 319, 999), a server that is
    /// starting or stopping (236, 279).
    pub(super) const PASSING: [i32; 10] = [202, 225, 236, 242, 244, 252, 279, 286, 319, 999];
    /// After these a read may be made again: it was too slow once (159 TIMEOUT_EXCEEDED, 209 SOCKET_TIMEOUT), or the
    /// server lost a connection of its own (210 NETWORK_ERROR).
    pub(super) const PASSING_FOR_READS: [i32; 2] = [209, 210];
}

/// Lets an answer pass that is a result: a whole one, or its beginning where that was asked for.
pub(crate) fn check(
    response: Response,
    effect: Effect,
    answer: Answer,
    connection: &Connection,
) -> Result<Response, Error> {
    // Before anything is shortened: half of a password would not be found.
    let redact = |text: &str| connection.password.redact(text, &connection.user);
    if let Some(exception) = exception(&response, &redact) {
        return Err(classify(exception, effect));
    }
    if response.status != 200 || !response.from_clickhouse {
        return Err(foreign(&response, effect, connection, &|text| {
            one_line(&redact(text))
        }));
    }
    match (response.ending, answer) {
        (Ending::Whole, _) | (Ending::Cut, Answer::Rows) => Ok(response),
        (Ending::Cut, Answer::Whole) => Err(Broken::TooLarge.error(&connection.origin(), effect)),
        (Ending::Broken(broken), _) => Err(broken.error(&connection.origin(), effect)),
    }
}

/// An error of ClickHouse as it stands in an answer.
#[derive(Debug, PartialEq, Eq)]
struct Exception {
    code: i32,
    name: String,
    text: String,
}

fn exception(response: &Response, redact: &dyn Fn(&str) -> String) -> Option<Exception> {
    let header = response
        .exception_code
        .as_ref()
        .and_then(|code| code.trim().parse().ok());
    if response.status == 200 && header.is_none() {
        return trailer(response).map(|text| Exception::parse(&redact(&text), None));
    }
    let text = String::from_utf8_lossy(&response.body);
    (header.is_some() || text.starts_with("Code: "))
        .then(|| Exception::parse(&redact(&text), header))
}

/// The words behind a result that broke off. The tag is random, so that no document can hold it.
fn trailer(response: &Response) -> Option<String> {
    let tag = response.exception_tag.as_ref()?;
    let mark = format!("__exception__\r\n{tag}\r\n");
    // Every answer has a tag: only the end is searched, since documents are long and errors are not.
    let start = response.body.len().saturating_sub(LONGEST_TRAILER);
    let end = response.body.get(start..)?;
    let at = find(end, mark.as_bytes())?;
    let words = end.get(at + mark.len()..)?;
    Some(String::from_utf8_lossy(words).into_owned())
}

/// More than the words of any exception take.
const LONGEST_TRAILER: usize = 32 * 1024;

/// More than the name of any error has.
const LONGEST_NAME: usize = 100;

/// From the end, where a trailer is.
fn find(body: &[u8], mark: &[u8]) -> Option<usize> {
    body.windows(mark.len()).rposition(|window| window == mark)
}

impl Exception {
    fn parse(text: &str, header: Option<i32>) -> Self {
        let code = text
            .strip_prefix("Code: ")
            .and_then(|rest| rest.split_once('.'))
            .and_then(|(code, _)| code.parse().ok());
        let words = text
            .split_once("Exception: ")
            .map_or(text, |(_, words)| words);
        let words = words
            .rsplit_once(" (version ")
            .map_or(words, |(words, _)| words);
        // `words (NAME)`, the name in upper case.
        let name = words
            .trim_end()
            .strip_suffix(')')
            .and_then(|words| words.rsplit_once('('))
            .map(|(_, name)| name)
            .filter(|name| {
                name.len() <= LONGEST_NAME
                    && name
                        .chars()
                        .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
            })
            .unwrap_or_default();
        Self {
            code: header.or(code).unwrap_or_default(),
            name: name.to_owned(),
            text: one_line(words),
        }
    }
}

/// Whether the request that was answered so may be sent again, with a chance that it succeeds.
pub(crate) fn is_passing(response: &Response, effect: Effect) -> bool {
    match exception(response, &str::to_owned) {
        Some(Exception { code, .. }) => {
            let certain = !code::UNCERTAIN.contains(&code);
            (code::PASSING.contains(&code) && (certain || effect.may_be_repeated()))
                || (code::PASSING_FOR_READS.contains(&code) && effect == Effect::Read)
        }
        // A gateway.
        None => matches!(response.status, 502..=504) && effect.may_be_repeated(),
    }
}

fn classify(exception: Exception, effect: Effect) -> Error {
    let Exception { code, name, text } = exception;
    let outcome = match code::UNCERTAIN.contains(&code) {
        true => effect.uncertain(),
        false => Outcome::NotApplied,
    };
    match code {
        code if code::NOT_AUTHENTICATED.contains(&code) => Error::Unauthenticated(format!(
            "ClickHouse does not accept this user and password; check the URI, or the settings `user` and `password` ({text})"
        )),
        code::ACCESS_DENIED => {
            Error::AccessDenied(format!("ClickHouse does not allow this: {text}"))
        }
        code::READONLY => Error::AccessDenied(format!(
            "this ClickHouse user may only read (its profile has `readonly`); use one that may write ({text})"
        )),
        code::KEEPER_EXCEPTION => Error::Unavailable(Failure {
            message: format!("ClickHouse can't reach its Keeper, or was refused by it: {text}"),
            outcome,
        }),
        code::TIMEOUT_EXCEEDED | code::SOCKET_TIMEOUT => Error::TimedOut(Failure {
            message: format!("ClickHouse gave up: {text}"),
            outcome,
        }),
        _ => Error::Server(ServerError {
            code,
            message: format!("ClickHouse answered with error {code}: {text}"),
            name,
            outcome,
        }),
    }
}

/// An answer that is not ClickHouse's: of a proxy, of the native port, of something else altogether.
fn foreign(
    response: &Response,
    effect: Effect,
    connection: &Connection,
    redact: &dyn Fn(&str) -> String,
) -> Error {
    let text = String::from_utf8_lossy(&response.body);
    let origin = connection.origin();
    if text.contains("is for clickhouse-client program") {
        return Error::InvalidInput(format!(
            "{origin} is the port of ClickHouse's native protocol; give the port of its HTTP interface, 8123 is usual"
        ));
    }
    match response.status {
        401 | 403 => Error::Unauthenticated(format!(
            "{origin} refused the user and password with HTTP status {}: {}",
            response.status,
            redact(&text)
        )),
        // A gateway that could not reach the server, or gave up waiting for it.
        502..=504 => Error::Unavailable(Failure {
            message: format!(
                "{origin} answered with HTTP status {}: ClickHouse is not reachable behind it",
                response.status
            ),
            outcome: effect.uncertain(),
        }),
        status => Error::Server(ServerError {
            code: 0,
            name: String::new(),
            message: format!(
                "{origin} answered with HTTP status {status} and not as ClickHouse does; check the host, the port and `secure` ({})",
                redact(&text)
            ),
            outcome: effect.uncertain(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection() -> Connection {
        Connection::new("clickhouse://app:sekret@h/db", &[]).unwrap()
    }

    fn response(status: u16, code: Option<&str>, body: &str) -> Response {
        Response {
            status,
            exception_code: code.map(str::to_owned),
            exception_tag: Some("abcdefgh".to_owned()),
            from_clickhouse: true,
            format: None,
            body: body.as_bytes().to_owned(),
            ending: Ending::Whole,
        }
    }

    fn failed(response: Response) -> Error {
        check(response, Effect::Once, Answer::Whole, &connection()).unwrap_err()
    }

    #[test]
    fn a_result_is_handed_on_as_it_is() {
        let result = check(
            response(200, None, "Code: 1. "),
            Effect::Read,
            Answer::Whole,
            &connection(),
        );
        assert_eq!(result.unwrap().body, b"Code: 1. ");
    }

    #[test]
    fn an_exception_carries_code_name_and_words() {
        let body = "Code: 241. DB::Exception: (total) memory limit (MAX) exceeded: 1 B. (MEMORY_LIMIT_EXCEEDED) (version 26.9.2.1 (official build))\n";
        assert_eq!(
            failed(response(500, Some("241"), body)),
            Error::Server(ServerError {
                code: 241,
                name: "MEMORY_LIMIT_EXCEEDED".to_owned(),
                message: "ClickHouse answered with error 241: (total) memory limit (MAX) exceeded: 1 B. (MEMORY_LIMIT_EXCEEDED)".to_owned(),
                outcome: Outcome::NotApplied,
            })
        );
    }

    #[test]
    fn what_is_longer_than_any_name_is_none() {
        let body = format!("Code: 1. DB::Exception: x ({})", "A".repeat(1000));
        let Error::Server(error) = failed(response(500, Some("1"), &body)) else {
            panic!()
        };
        assert_eq!(error.name, "");
        assert!(error.message.chars().count() < 600, "{}", error.message);
    }

    #[test]
    fn an_exception_is_found_in_the_header_the_body_and_the_trailer() {
        let words =
            "Code: 60. DB::Exception: Table a.b does not exist. (UNKNOWN_TABLE) (version 1)";
        for response in [
            response(404, Some("60"), words),
            response(404, None, words),
            response(200, Some("60"), words),
            response(
                200,
                None,
                &format!("rows\r\n__exception__\r\nabcdefgh\r\n{words}\r\n"),
            ),
        ] {
            let Error::Server(error) = failed(response) else {
                panic!()
            };
            assert_eq!((error.code, &*error.name), (60, "UNKNOWN_TABLE"));
        }
    }

    #[test]
    fn the_words_of_an_exception_are_found_where_the_answer_broke_off() {
        let body = "rows\r\n__exception__\r\nabcdefgh\r\nCode: 395. DB::Exception: x (NAME) (version 1)\n59 abcdefgh\r\n";
        let broken = |body: &str| {
            failed(Response {
                ending: Ending::Broken(Broken::Interrupted),
                ..response(200, None, body)
            })
        };
        let Error::Server(error) = broken(body) else {
            panic!()
        };
        assert_eq!((error.code, &*error.name), (395, "NAME"));
        assert!(matches!(broken("rows"), Error::Unavailable(_)));
    }

    #[test]
    fn only_rows_may_be_cut() {
        let cut = |answer| {
            let response = Response {
                ending: Ending::Cut,
                ..response(200, None, "rows")
            };
            check(response, Effect::Read, answer, &connection())
        };
        assert!(cut(Answer::Rows).is_ok());
        assert!(matches!(cut(Answer::Whole), Err(Error::Unavailable(_))));
    }

    #[test]
    fn a_document_can_not_pretend_to_be_an_exception() {
        let body = "rows\r\n__exception__\r\nother\r\nCode: 60. DB::Exception: x";
        assert!(
            check(
                response(200, None, body),
                Effect::Read,
                Answer::Whole,
                &connection()
            )
            .is_ok()
        );
    }

    #[test]
    fn kinds_are_told_apart() {
        let kind = |status, code: &str, words: &str| {
            failed(response(
                status,
                Some(code),
                &format!("Code: {code}. DB::Exception: {words}"),
            ))
        };
        for code in ["192", "193", "194", "516"] {
            assert!(
                matches!(kind(403, code, "no"), Error::Unauthenticated(_)),
                "{code}"
            );
        }
        let Error::AccessDenied(message) =
            kind(403, "497", "it's necessary to have the grant INSERT ON a.b")
        else {
            panic!()
        };
        assert!(message.contains("grant INSERT ON a.b"), "{message}");
        assert!(matches!(
            kind(500, "164", "readonly"),
            Error::AccessDenied(_)
        ));
        for code in ["159", "209"] {
            let Error::TimedOut(failure) = kind(408, code, "Timeout exceeded") else {
                panic!()
            };
            assert_eq!(failure.outcome, Outcome::Unknown);
        }
        let Error::Server(error) = kind(500, "319", "unknown status of insert") else {
            panic!()
        };
        assert_eq!(error.outcome, Outcome::Unknown);
    }

    #[test]
    fn passing_faults_are_told_from_lasting_ones() {
        let passing = |code: &str, effect| {
            let words = format!("Code: {code}. DB::Exception: words (NAME) (version 1)");
            is_passing(&response(500, Some(code), &words), effect)
        };
        for effect in [Effect::Read, Effect::Repeatable, Effect::Once] {
            assert!(
                passing("252", effect) && passing("202", effect),
                "{effect:?}"
            );
            assert!(
                !passing("60", effect) && !passing("497", effect),
                "{effect:?}"
            );
        }
        // What may have been stored is not sent twice.
        assert!(passing("319", Effect::Repeatable) && !passing("319", Effect::Once));
        assert!(passing("209", Effect::Read) && !passing("209", Effect::Repeatable));
        let gateway = |status| Response {
            from_clickhouse: false,
            exception_tag: None,
            ..response(status, None, "")
        };
        assert!(
            is_passing(&gateway(502), Effect::Read) && !is_passing(&gateway(502), Effect::Once)
        );
        assert!(!is_passing(&gateway(404), Effect::Read));
        assert!(!is_passing(&response(200, None, "rows"), Effect::Read));
    }

    #[test]
    fn a_read_that_timed_out_has_written_nothing() {
        let body = "Code: 159. DB::Exception: Timeout exceeded";
        let error = check(
            response(408, Some("159"), body),
            Effect::Read,
            Answer::Whole,
            &connection(),
        );
        let Err(Error::TimedOut(failure)) = error else {
            panic!()
        };
        assert_eq!(failure.outcome, Outcome::NotApplied);
    }

    #[test]
    fn what_is_not_clickhouse_is_told_as_such() {
        let foreign = |status, body: &str| {
            failed(Response {
                from_clickhouse: false,
                exception_tag: None,
                ..response(status, None, body)
            })
        };
        let native =
            "Port 9000 is for clickhouse-client program\r\nYou must use port 8123 for HTTP.\r\n";
        let Error::InvalidInput(message) = foreign(400, native) else {
            panic!()
        };
        assert!(message.contains("8123"), "{message}");
        assert!(matches!(foreign(401, "login"), Error::Unauthenticated(_)));
        assert!(matches!(foreign(502, "bad gateway"), Error::Unavailable(_)));
        let Error::Server(error) = foreign(200, "<html>\nwelcome</html>") else {
            panic!()
        };
        assert!(
            error.message.contains("not as ClickHouse does"),
            "{}",
            error.message
        );
        assert_eq!(error.outcome, Outcome::Unknown);
    }

    /// Wherever the message is shortened, no part of the password is left of it.
    #[test]
    fn a_password_is_redacted_before_a_message_is_shortened() {
        for before in 440..520 {
            let words = format!("Code: 1. DB::Exception: {} sekret", "x".repeat(before));
            let shown = format!("{:?}", failed(response(500, Some("1"), &words)));
            assert!(!shown.contains(" se") && !shown.contains("sek"), "{shown}");
        }
    }

    #[test]
    fn an_echoed_password_is_redacted() {
        for response in [
            response(
                500,
                Some("1"),
                "Code: 1. DB::Exception: you sent sekret and YXBwOnNla3JldA==",
            ),
            response(403, Some("516"), "Code: 516. DB::Exception: app:sekret"),
            Response {
                from_clickhouse: false,
                ..response(500, None, "Authorization: Basic YXBwOnNla3JldA==")
            },
        ] {
            let shown = format!("{:?}", failed(response));
            assert!(
                !shown.contains("sekret") && !shown.contains("YXBwOnNla3JldA"),
                "{shown}"
            );
        }
    }
}
