//! Requests of any form.

use serde_json::{Map, Value, json};

use crate::bindings::wasi::http::outgoing_handler;
use crate::bindings::wasi::http::types::{
    Fields, FutureIncomingResponse, Method, OutgoingBody, OutgoingRequest, RequestOptions, Scheme,
    http_error_code,
};
use crate::bindings::wasi::io::streams::StreamError;
use crate::{Error, Failure, Outcome};

/// What is asked for, as JSON. All of it may be left out:
///
/// - `method`, `scheme`, `authority`, `path`: as they are; `GET`, `http`, none and none unless told.
/// - `headers`: pairs of names and values.
/// - `body`: a text, sent as it is. `unfinished`: and never ended.
/// - `times`: how often. `wait`: whether for each answer before the next request is sent; yes unless told.
/// - `hold`: whether answers are kept instead of read.
/// - `connect`, `first`, `between`: time-outs in milliseconds.
///
/// Answers are `{"status", "headers", "body"}`, or `{"refused"}`. An attack whose every request was refused fails.
pub(crate) struct Attack(Map<String, Value>);

impl Attack {
    pub(crate) fn parse(text: &str) -> Result<Attack, Error> {
        serde_json::from_str(text)
            .map(Attack)
            .map_err(|error| Error::InvalidInput(error.to_string()))
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    fn flag(&self, name: &str, usually: bool) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or(usually)
    }

    fn nanoseconds(&self, name: &str) -> Option<u64> {
        Some(self.0.get(name)?.as_u64()?.saturating_mul(1_000_000))
    }

    pub(crate) fn run(&self) -> Result<Value, Error> {
        let times = self.0.get("times").and_then(Value::as_u64).unwrap_or(1);
        let wait = self.flag("wait", true);
        let (mut answers, mut sent) = (Vec::new(), Vec::new());
        let mut held = Vec::new();
        for _ in 0..times {
            match self.send() {
                Err(refused) => answers.push(Err(refused)),
                Ok(answer) if wait => answers.push(self.receive(answer, &mut held)),
                Ok(answer) => sent.push(answer),
            }
        }
        for answer in sent {
            answers.push(self.receive(answer, &mut held));
        }
        if let (true, Some(Err(refused))) = (answers.iter().all(Result::is_err), answers.first()) {
            return Err(Error::Unavailable(Failure {
                message: format!("refused: {refused}"),
                outcome: Outcome::NotApplied,
            }));
        }
        let answers: Vec<_> = answers
            .into_iter()
            .map(|answer| answer.unwrap_or_else(|refused| json!({ "refused": refused })))
            .collect();
        Ok(json!({ "answers": answers }))
    }

    fn send(&self) -> Result<FutureIncomingResponse, String> {
        let headers = Fields::new();
        for pair in self
            .0
            .get("headers")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let part = |index| pair.get(index).and_then(Value::as_str).unwrap_or_default();
            headers
                .append(part(0), part(1).as_bytes())
                .map_err(|error| format!("header {}: {error}", part(0)))?;
        }
        let request = OutgoingRequest::new(headers);
        let refused = |what: &'static str| move |()| what.to_owned();
        request
            .set_method(&method(self.text("method").unwrap_or("GET")))
            .map_err(refused("method"))?;
        let scheme = match self.text("scheme") {
            None | Some("http") => Scheme::Http,
            Some("https") => Scheme::Https,
            Some(other) => Scheme::Other(other.to_owned()),
        };
        request
            .set_scheme(Some(&scheme))
            .map_err(refused("scheme"))?;
        request
            .set_authority(self.text("authority"))
            .map_err(refused("authority"))?;
        request
            .set_path_with_query(self.text("path"))
            .map_err(refused("path"))?;
        let body = self
            .text("body")
            .map(|text| request.body().map(|body| (body, text)))
            .transpose()
            .map_err(refused("body"))?;
        let answer = outgoing_handler::handle(request, Some(self.options()))
            .map_err(|code| code.to_string())?;
        if let Some((body, text)) = body {
            self.write(body, text.as_bytes())?;
        }
        Ok(answer)
    }

    fn options(&self) -> RequestOptions {
        let options = RequestOptions::new();
        let all = [
            options.set_connect_timeout(self.nanoseconds("connect")),
            options.set_first_byte_timeout(self.nanoseconds("first")),
            options.set_between_bytes_timeout(self.nanoseconds("between")),
        ];
        debug_assert!(all.iter().all(Result::is_ok));
        options
    }

    fn write(&self, body: OutgoingBody, bytes: &[u8]) -> Result<(), String> {
        let broken = |error: StreamError| format!("body: {error}");
        let stream = body.write().map_err(|()| "body: no stream".to_owned())?;
        for piece in bytes.chunks(4096) {
            stream.blocking_write_and_flush(piece).map_err(broken)?;
        }
        drop(stream);
        match self.flag("unfinished", false) {
            true => core::mem::forget(body),
            false => OutgoingBody::finish(body, None).map_err(|code| format!("body: {code}"))?,
        }
        Ok(())
    }

    fn receive(
        &self,
        answer: FutureIncomingResponse,
        held: &mut Vec<FutureIncomingResponse>,
    ) -> Result<Value, String> {
        answer.subscribe().block();
        if self.flag("hold", false) {
            held.push(answer);
            return Ok(json!({}));
        }
        let response = match answer.get() {
            Some(Ok(Ok(response))) => response,
            Some(Ok(Err(code))) => return Err(code.to_string()),
            _ => return Err("no answer".to_owned()),
        };
        let headers: Vec<_> = response
            .headers()
            .entries()
            .into_iter()
            .map(|(name, value)| (name, String::from_utf8_lossy(&value).into_owned()))
            .collect();
        let body = response.consume().map_err(|()| "no body".to_owned())?;
        let stream = body.stream().map_err(|()| "no stream".to_owned())?;
        let mut bytes = Vec::new();
        let mut length = 0;
        loop {
            match stream.blocking_read(1 << 20) {
                Ok(piece) => {
                    length += piece.len();
                    // A beginning is enough to tell what it is.
                    bytes.extend(
                        piece
                            .into_iter()
                            .take(4096_usize.saturating_sub(bytes.len())),
                    );
                }
                Err(StreamError::Closed) => break,
                Err(StreamError::LastOperationFailed(error)) => {
                    return Err(match http_error_code(&error) {
                        Some(code) => format!("behind {length} bytes: {code}"),
                        None => error.to_debug_string(),
                    });
                }
            }
        }
        Ok(json!({
            "status": response.status(),
            "headers": headers,
            "length": length,
            "body": String::from_utf8_lossy(&bytes),
        }))
    }
}

fn method(text: &str) -> Method {
    match text {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "DELETE" => Method::Delete,
        "CONNECT" => Method::Connect,
        "OPTIONS" => Method::Options,
        "TRACE" => Method::Trace,
        // A method that is known, as one that is not.
        other => Method::Other(other.trim_start_matches('!').to_owned()),
    }
}
