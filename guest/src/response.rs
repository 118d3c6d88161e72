//! What an answer means: a result, or which error of the contract.
//!
//! ClickHouse tells an error by the status, by the header `X-ClickHouse-Exception-Code`, and by the text
//! `Code: N. DB::Exception: words (NAME) (version ...)`. One that comes after the first byte of a result stands
//! behind it, after a line `__exception__` and the tag that a header gave.

use crate::connection::Connection;
use crate::error::{Effect, Error, Failure, Outcome, ServerError, one_line};

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
    pub(crate) body: Vec<u8>,
}

/// The codes that something here depends on; the names are ClickHouse's.
pub(crate) mod code {
    pub(crate) const TABLE_ALREADY_EXISTS: i32 = 57;
    pub(crate) const UNKNOWN_TABLE: i32 = 60;
    pub(crate) const UNKNOWN_DATABASE: i32 = 81;
    pub(crate) const DATABASE_ALREADY_EXISTS: i32 = 82;
    pub(crate) const UNFINISHED: i32 = 341;

    pub(super) const TIMEOUT_EXCEEDED: i32 = 159;
    pub(super) const READONLY: i32 = 164;
    pub(super) const SOCKET_TIMEOUT: i32 = 209;
    pub(super) const ACCESS_DENIED: i32 = 497;
    /// Unknown user, wrong password, password required; then, since 20.x, all three in one.
    pub(super) const NOT_AUTHENTICATED: [i32; 4] = [192, 193, 194, 516];
    /// After these an insert may be stored all the same: the server was interrupted, or lost sight of it
    /// (NETWORK_ERROR, TIMEOUTs, UNKNOWN_STATUS_OF_INSERT, QUERY_WAS_CANCELLED, UNFINISHED, KEEPER_EXCEPTION).
    pub(super) const UNCERTAIN: [i32; 7] = [159, 209, 210, 319, 341, 394, 999];
}

/// Takes the result out of an answer.
pub(crate) fn check(
    response: Response,
    effect: Effect,
    connection: &Connection,
) -> Result<Vec<u8>, Error> {
    let exception = exception(&response);
    if exception.is_none() && response.status == 200 && response.from_clickhouse {
        return Ok(response.body);
    }
    let redact = |text: &str| {
        connection
            .password
            .redact(&one_line(text), &connection.user)
    };
    match exception {
        Some(exception) => Err(classify(exception, effect, &redact)),
        None => Err(foreign(&response, effect, connection, &redact)),
    }
}

/// An error of ClickHouse as it stands in an answer.
#[derive(Debug, PartialEq, Eq)]
struct Exception {
    code: i32,
    name: String,
    text: String,
}

fn exception(response: &Response) -> Option<Exception> {
    let header = response
        .exception_code
        .as_ref()
        .and_then(|code| code.trim().parse().ok());
    if response.status == 200 && header.is_none() {
        return trailer(response).map(|text| Exception::parse(&text, None));
    }
    let text = String::from_utf8_lossy(&response.body);
    (header.is_some() || text.starts_with("Code: ")).then(|| Exception::parse(&text, header))
}

/// The words behind a result that broke off. The tag is random, so that no document can hold it.
fn trailer(response: &Response) -> Option<String> {
    let tag = response.exception_tag.as_ref()?;
    let mark = format!("__exception__\r\n{tag}\r\n");
    let at = find(&response.body, mark.as_bytes())?;
    let words = response.body.get(at + mark.len()..)?;
    Some(String::from_utf8_lossy(words).into_owned())
}

/// From the end, where a trailer is.
fn find(body: &[u8], mark: &[u8]) -> Option<usize> {
    body.windows(mark.len()).rposition(|window| window == mark)
}

impl Exception {
    fn parse(text: &str, header: Option<i32>) -> Self {
        let line = one_line(text);
        let code = line
            .strip_prefix("Code: ")
            .and_then(|rest| rest.split_once('.'))
            .and_then(|(code, _)| code.parse().ok());
        // `... (NAME) (version 26.9.2.1)`: names are in upper case.
        let is_name = |word: &&str| {
            !word.is_empty()
                && word
                    .chars()
                    .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
        };
        let name = line
            .rsplit('(')
            .filter_map(|part| part.split_once(')').map(|(word, _)| word))
            .find(is_name)
            .unwrap_or_default();
        let words = line
            .split_once("Exception: ")
            .map_or(line.as_str(), |(_, words)| words);
        let words = words
            .rsplit_once(" (version ")
            .map_or(words, |(words, _)| words);
        Self {
            code: header.or(code).unwrap_or_default(),
            name: name.to_owned(),
            text: words.to_owned(),
        }
    }
}

fn classify(exception: Exception, effect: Effect, redact: &dyn Fn(&str) -> String) -> Error {
    let Exception { code, name, text } = exception;
    let text = redact(&text);
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
            body: body.as_bytes().to_owned(),
        }
    }

    fn failed(response: Response) -> Error {
        check(response, Effect::Write, &connection()).unwrap_err()
    }

    #[test]
    fn a_result_is_handed_on_as_it_is() {
        let result = check(
            response(200, None, "Code: 1. "),
            Effect::Read,
            &connection(),
        );
        assert_eq!(result.unwrap(), b"Code: 1. ");
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
    fn a_document_can_not_pretend_to_be_an_exception() {
        let body = "rows\r\n__exception__\r\nother\r\nCode: 60. DB::Exception: x";
        assert!(check(response(200, None, body), Effect::Read, &connection()).is_ok());
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
    fn a_read_that_timed_out_has_written_nothing() {
        let body = "Code: 159. DB::Exception: Timeout exceeded";
        let error = check(
            response(408, Some("159"), body),
            Effect::Read,
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
