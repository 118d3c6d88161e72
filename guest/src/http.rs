//! The world outside by WASI: sends one request over `wasi:http` and reads the answer; clocks and chance.

use std::time::Duration;

use crate::bindings::wasi::clocks::{monotonic_clock, wall_clock};
use crate::bindings::wasi::http::outgoing_handler;
use crate::bindings::wasi::http::types::{
    ErrorCode, Fields, IncomingBody, IncomingResponse, Method, OutgoingBody, OutgoingRequest,
    RequestOptions, Scheme, http_error_code,
};
use crate::bindings::wasi::io::streams::StreamError;
use crate::bindings::wasi::random::random;
use crate::client::Outside;
use crate::connection::Connection;
use crate::gzip;
use crate::network::Broken;
use crate::options::Options;
use crate::response::{Ending, Response};
use crate::sql::{Answer, Request};

/// Both documents of a state at their limit, and their surroundings.
const LONGEST_WHOLE: usize = 160 * 1024 * 1024;
/// A page of states may be cut behind any of them, so it need not be large.
const ENOUGH_ROWS: usize = 32 * 1024 * 1024;
/// How much is asked for at once.
const PIECE: u64 = 1024 * 1024;

/// The world outside, by WASI.
#[derive(Debug)]
pub(crate) struct Wasi;

impl Outside for Wasi {
    fn send(&self, to: &Connection, request: &Request) -> Result<Response, Broken> {
        exchange(to, request)
    }

    fn pause(&self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        monotonic_clock::subscribe_duration(nanoseconds).block();
    }

    fn random(&self) -> u64 {
        random::get_random_u64()
    }

    fn elapsed(&self) -> Duration {
        Duration::from_nanos(monotonic_clock::now())
    }

    fn clock_ms(&self) -> i64 {
        let now = wall_clock::now();
        let seconds = i64::try_from(now.seconds).unwrap_or(i64::MAX);
        seconds
            .saturating_mul(1000)
            .saturating_add(i64::from(now.nanoseconds / 1_000_000))
    }
}

fn exchange(connection: &Connection, request: &Request) -> Result<Response, Broken> {
    let compressed = connection
        .options
        .compress
        .then(|| gzip::pack(&request.body))
        .flatten();
    let bytes = compressed.as_deref().unwrap_or(&request.body);
    let header = |name: &str, value: String| (name.to_owned(), value.into_bytes());
    let authorization = connection.password.authorization(&connection.user);
    let mut headers = vec![
        (
            "authorization".to_owned(),
            authorization.as_bytes().to_vec(),
        ),
        header("content-length", bytes.len().to_string()),
    ];
    if compressed.is_some() {
        headers.push(header("content-encoding", "gzip".to_owned()));
    }
    if connection.options.compress {
        headers.push(header("accept-encoding", "gzip".to_owned()));
    }
    let headers = Fields::from_list(&headers).map_err(|_| Broken::NotSent)?;
    let outgoing = OutgoingRequest::new(headers);
    let scheme = if connection.tls {
        Scheme::Https
    } else {
        Scheme::Http
    };
    outgoing
        .set_method(&Method::Post)
        .and_then(|()| outgoing.set_scheme(Some(&scheme)))
        .and_then(|()| outgoing.set_authority(Some(&connection.authority)))
        .and_then(|()| outgoing.set_path_with_query(Some(&request.path)))
        .map_err(|()| Broken::NotSent)?;
    let body = outgoing.body().map_err(|()| Broken::NotSent)?;

    let answer = outgoing_handler::handle(outgoing, Some(timeouts(&connection.options)?))
        .map_err(|code| broken(&code))?;
    // A server may answer, and close, before it has read everything: its answer says more than the failed write.
    let written = write(body, bytes);
    answer.subscribe().block();
    match answer.get() {
        Some(Ok(Ok(response))) => match (read(response, request.answer)?, written) {
            // It can't have done what it did not read.
            (Response { status: 200, .. }, Err(broken)) => Err(broken),
            (response, _) => Ok(response),
        },
        Some(Ok(Err(code))) => Err(broken(&code)),
        _ => Err(written.err().unwrap_or(Broken::Interrupted)),
    }
}

fn timeouts(options: &Options) -> Result<RequestOptions, Broken> {
    let nanoseconds = |time: Duration| Some(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    let answer = nanoseconds(options.request_timeout);
    let timeouts = RequestOptions::new();
    timeouts
        .set_connect_timeout(nanoseconds(options.connect_timeout))
        .and_then(|()| timeouts.set_first_byte_timeout(answer))
        .and_then(|()| timeouts.set_between_bytes_timeout(answer))
        .map_err(|()| Broken::NotSent)?;
    Ok(timeouts)
}

fn write(body: OutgoingBody, bytes: &[u8]) -> Result<(), Broken> {
    let interrupted = |_| Broken::Interrupted;
    let stream = body.write().map_err(|()| Broken::Interrupted)?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let room =
            usize::try_from(stream.check_write().map_err(interrupted)?).unwrap_or(usize::MAX);
        if room == 0 {
            stream.subscribe().block();
            continue;
        }
        let (now, later) = rest.split_at(room.min(rest.len()));
        stream.write(now).map_err(interrupted)?;
        rest = later;
    }
    drop(stream);
    OutgoingBody::finish(body, None).map_err(|code| broken(&code))
}

fn read(response: IncomingResponse, answer: Answer) -> Result<Response, Broken> {
    let status = response.status();
    let headers = response.headers();
    let header = |name: &str| {
        let value = headers.get(name).into_iter().next()?;
        String::from_utf8(value).ok()
    };
    let exception_code = header("x-clickhouse-exception-code");
    let exception_tag = header("x-clickhouse-exception-tag");
    let from_clickhouse = exception_code.is_some() || header("x-clickhouse-query-id").is_some();
    let format = header("x-clickhouse-format");
    let compressed = header("content-encoding").is_some_and(|coding| coding == "gzip");
    let length = header("content-length").and_then(|length| length.parse().ok());
    drop(headers);
    let body = response.consume().map_err(|()| Broken::Interrupted)?;
    let limit = match answer {
        Answer::Whole => LONGEST_WHOLE,
        Answer::Rows => ENOUGH_ROWS,
    };
    let (body, ending) = read_body(&body, length, limit)?;
    let (body, ending) = match compressed {
        true => gzip::unpack(&body, ending, limit),
        false => (body, ending),
    };
    Ok(Response {
        status,
        exception_code,
        exception_tag,
        from_clickhouse,
        format,
        body,
        ending,
    })
}

/// What came is handed on also when it broke off: the words of an exception may stand at its end.
fn read_body(
    body: &IncomingBody,
    length: Option<usize>,
    limit: usize,
) -> Result<(Vec<u8>, Ending), Broken> {
    let stream = body.stream().map_err(|()| Broken::Interrupted)?;
    // A length that is a lie costs no more than one piece.
    let mut bytes = Vec::with_capacity(length.unwrap_or_default().min(PIECE as usize));
    loop {
        match stream.blocking_read(PIECE) {
            Ok(piece) if bytes.is_empty() && bytes.capacity() < piece.len() => bytes = piece,
            Ok(piece) => bytes.extend_from_slice(&piece),
            Err(StreamError::Closed) => return Ok((bytes, Ending::Whole)),
            Err(StreamError::LastOperationFailed(error)) => {
                // Whatever else it is, it came after the request.
                let broken = match http_error_code(&error).as_ref().map(broken) {
                    Some(Broken::AnswerTimeout) => Broken::AnswerTimeout,
                    _ => Broken::Interrupted,
                };
                return Ok((bytes, Ending::Broken(broken)));
            }
        }
        if bytes.len() > limit {
            return Ok((bytes, Ending::Cut));
        }
    }
}

fn broken(code: &ErrorCode) -> Broken {
    match code {
        ErrorCode::HttpRequestDenied | ErrorCode::DestinationIpProhibited => Broken::Denied,
        ErrorCode::ConnectionRefused => Broken::Refused,
        ErrorCode::DnsError(_) | ErrorCode::DnsTimeout | ErrorCode::DestinationNotFound => {
            Broken::UnknownName
        }
        ErrorCode::DestinationUnavailable | ErrorCode::DestinationIpUnroutable => {
            Broken::Unreachable
        }
        ErrorCode::ConnectionTimeout => Broken::ConnectTimeout,
        ErrorCode::TlsCertificateError => Broken::Certificate,
        // The alerts of RFC 8446 (section 6.2) about the certificate that this side showed, or did not.
        ErrorCode::TlsAlertReceived(alert)
            if matches!(alert.alert_id, Some(42..=46 | 48 | 49 | 116)) =>
        {
            Broken::ClientCertificate
        }
        ErrorCode::TlsProtocolError | ErrorCode::TlsAlertReceived(_) => Broken::Tls,
        ErrorCode::HttpRequestUriInvalid
        | ErrorCode::HttpRequestUriTooLong
        | ErrorCode::HttpRequestMethodInvalid
        | ErrorCode::ConnectionLimitReached => Broken::NotSent,
        ErrorCode::ConnectionReadTimeout
        | ErrorCode::ConnectionWriteTimeout
        | ErrorCode::HttpResponseTimeout => Broken::AnswerTimeout,
        // All others may come when the server already has the request.
        _ => Broken::Interrupted,
    }
}
