//! Sends a request until there is an answer that counts: again after a passing fault, where that can double nothing.

use std::time::Duration;

use crate::connection::Connection;
use crate::error::{Effect, Error, Outcome, ServerError};
use crate::network::Broken;
use crate::response::{self, Response, code};
use crate::sql::Request;

/// What the plugin needs of the world outside.
pub(crate) trait Outside {
    /// Sends a request once. An answer of any status is a success here.
    fn send(&self, to: &Connection, request: &Request) -> Result<Response, Broken>;
    fn pause(&self, time: Duration);
    fn random(&self) -> u64;
    /// The time of this machine since any moment that stays the same.
    fn elapsed(&self) -> Duration;
    /// The clock of this machine, in milliseconds since 1970.
    fn clock_ms(&self) -> i64;
}

/// A server, and the way there.
#[derive(Debug)]
pub(crate) struct Client<'a, O> {
    pub(crate) connection: &'a Connection,
    pub(crate) outside: O,
}

/// The first pause between two tries; each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How often a request is sent at most: some 3 s of pauses.
const TRIES: u32 = 8;

/// A body from which on a server that refuses it closes the connection before it has read all: then the
/// client learns no more than that. Below, all of it is in the sockets' buffers.
const LARGE_BODY: usize = 64 * 1024;

impl<'a, O: Outside> Client<'a, O> {
    pub(crate) fn new(connection: &'a Connection, outside: O) -> Self {
        Self {
            connection,
            outside,
        }
    }

    /// Sends a request, and lets an answer pass that is a result.
    pub(crate) fn send(&self, request: &Request) -> Result<Response, Error> {
        let start = self.outside.elapsed();
        // Whether an earlier try may have been applied, although this one was not.
        let mut doubt = false;
        let mut pause = FIRST_PAUSE;
        for attempt in 1.. {
            let answer = self.outside.send(self.connection, request);
            let again = match &answer {
                Err(broken) => {
                    broken.is_passing()
                        && (broken.before_sending() || request.effect.may_be_repeated())
                }
                Ok(response) => response::is_passing(response, request.effect),
            };
            let interrupted = matches!(answer, Err(Broken::Interrupted));
            let result = self.judge(answer, request);
            let Err(error) = result else {
                return result;
            };
            if interrupted && !doubt && request.body.len() > LARGE_BODY {
                self.ask_why_large_was_refused(request)?;
            }
            doubt |= error.outcome() == Outcome::Unknown;
            let jittered = pause.mul_f64(0.5 + self.outside.random() as f64 / u64::MAX as f64);
            let spent = self.outside.elapsed().saturating_sub(start) + jittered;
            if !again || attempt == TRIES || spent > self.connection.options.request_timeout {
                return Err(if doubt { error.in_doubt() } else { error });
            }
            self.outside.pause(jittered);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        // The loop above ends by returning.
        Err(Broken::NotSent.error(&self.connection.origin(), request.effect))
    }

    fn judge(
        &self,
        answer: Result<Response, Broken>,
        request: &Request,
    ) -> Result<Response, Error> {
        let response =
            answer.map_err(|broken| broken.error(&self.connection.origin(), request.effect))?;
        response::check(response, request.effect, request.answer, self.connection)
    }

    /// The same statement without rows writes nothing, and fails for the reason for which the rows were refused:
    /// no table, no grant.
    fn ask_why_large_was_refused(&self, request: &Request) -> Result<(), Error> {
        if request.effect == Effect::Read {
            return Ok(());
        }
        let probe = Request {
            body: Vec::new(),
            ..request.clone()
        };
        match self.judge(self.outside.send(self.connection, &probe), &probe) {
            Err(error @ (Error::AccessDenied(_) | Error::Unauthenticated(_))) => Err(error),
            Err(Error::Server(error)) if refuses_any_row(&error) => Err(Error::Server(error)),
            // It has other reasons, or passing ones.
            _ => Ok(()),
        }
    }

    /// None where there is no table.
    pub(crate) fn read(&self, request: &Request) -> Result<Option<Response>, Error> {
        match self.send(request) {
            Err(Error::Server(error)) if is_missing(&error) => Ok(None),
            result => result.map(Some),
        }
    }
}

/// Whether a server that says this has refused the rows before it looked at them.
fn refuses_any_row(error: &ServerError) -> bool {
    is_missing(error) || error.code == code::NO_SUCH_COLUMN
}

pub(crate) fn is_missing(error: &ServerError) -> bool {
    matches!(error.code, code::UNKNOWN_TABLE | code::UNKNOWN_DATABASE)
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;
    use crate::sql::{self, Answer};

    /// Answers from a list, and takes no time.
    struct Script {
        answers: RefCell<Vec<Result<Response, Broken>>>,
        sent: Cell<usize>,
        paused: Cell<Duration>,
    }

    impl Outside for &Script {
        fn send(&self, _: &Connection, _: &Request) -> Result<Response, Broken> {
            self.sent.set(self.sent.get() + 1);
            let mut answers = self.answers.borrow_mut();
            match answers.len() {
                1 => answers[0].as_ref().map(copy).map_err(|broken| *broken),
                _ => answers.remove(0),
            }
        }

        fn pause(&self, time: Duration) {
            self.paused.set(self.paused.get() + time);
        }

        fn random(&self) -> u64 {
            u64::MAX / 2
        }

        fn elapsed(&self) -> Duration {
            self.paused.get()
        }

        fn clock_ms(&self) -> i64 {
            0
        }
    }

    fn copy(response: &Response) -> Response {
        Response {
            status: response.status,
            exception_code: response.exception_code.clone(),
            from_clickhouse: response.from_clickhouse,
            body: response.body.clone(),
            ..Response::default()
        }
    }

    fn exception(code: i32) -> Result<Response, Broken> {
        Ok(Response {
            status: if code == 0 { 200 } else { 500 },
            exception_code: (code != 0).then(|| code.to_string()),
            from_clickhouse: true,
            body: format!("Code: {code}. DB::Exception: words (NAME) (version 1)").into_bytes(),
            ..Response::default()
        })
    }

    fn run(
        effect: Effect,
        answers: Vec<Result<Response, Broken>>,
    ) -> (Result<Response, Error>, usize, Duration) {
        run_with(10, effect, answers)
    }

    fn run_with(
        size: usize,
        effect: Effect,
        answers: Vec<Result<Response, Broken>>,
    ) -> (Result<Response, Error>, usize, Duration) {
        let connection = Connection::new("clickhouse://u@h/db?request_timeout=20", &[]).unwrap();
        let script = Script {
            answers: RefCell::new(answers),
            sent: Cell::new(0),
            paused: Cell::new(Duration::ZERO),
        };
        let request = Request {
            effect,
            answer: Answer::Whole,
            body: vec![b' '; size],
            ..sql::clock(&connection).unwrap()
        };
        let result = Client::new(&connection, &script).send(&request);
        (result, script.sent.get(), script.paused.get())
    }

    #[test]
    fn a_passing_fault_is_followed_by_another_try_and_a_lasting_one_is_not() {
        for fault in [
            exception(252),
            Err(Broken::Refused),
            Err(Broken::Interrupted),
        ] {
            let (result, sent, _) = run(Effect::Read, vec![fault, exception(0)]);
            assert!(result.is_ok() && sent == 2);
        }
        for fault in [
            exception(62),
            Err(Broken::Denied),
            Err(Broken::AnswerTimeout),
        ] {
            let (result, sent, _) = run(Effect::Read, vec![fault, exception(0)]);
            assert!(result.is_err() && sent == 1);
        }
    }

    #[test]
    fn what_the_server_may_have_is_sent_again_only_where_that_doubles_nothing() {
        let interrupted = || vec![Err(Broken::Interrupted), exception(0)];
        assert_eq!(run(Effect::Repeatable, interrupted()).1, 2);
        let (result, sent, _) = run(Effect::Once, interrupted());
        assert_eq!(sent, 1);
        assert_eq!(result.unwrap_err().outcome(), Outcome::Unknown);
        // Nothing of it was sent.
        assert_eq!(
            run(Effect::Once, vec![Err(Broken::Refused), exception(0)]).1,
            2
        );
    }

    #[test]
    fn an_earlier_try_that_may_have_been_applied_is_not_forgotten() {
        let answers = vec![Err(Broken::Interrupted), Err(Broken::Refused)];
        let (result, sent, _) = run(Effect::Repeatable, answers);
        assert_eq!((result.unwrap_err().outcome(), sent), (Outcome::Unknown, 8));
        let (result, ..) = run(Effect::Repeatable, vec![Err(Broken::Refused)]);
        assert_eq!(result.unwrap_err().outcome(), Outcome::NotApplied);
    }

    #[test]
    fn why_a_large_body_was_refused_is_asked_once_and_only_a_lasting_reason_counts() {
        let large = |answers| run_with(100_000, Effect::Repeatable, answers);
        let (result, sent, _) = large(vec![Err(Broken::Interrupted), exception(60), exception(0)]);
        assert!(matches!(result, Err(Error::Server(error)) if error.code == 60));
        assert_eq!(sent, 2);
        for passing in [Err(Broken::Refused), exception(202), exception(0)] {
            let (result, ..) = large(vec![Err(Broken::Interrupted), passing, exception(0)]);
            assert!(result.is_ok(), "{result:?}");
        }
        // It may have been stored, whatever comes after that.
        let (result, ..) = large(vec![Err(Broken::Interrupted), Err(Broken::Refused)]);
        assert_eq!(result.unwrap_err().outcome(), Outcome::Unknown);
    }

    #[test]
    fn tries_and_pauses_are_bounded() {
        let (result, sent, paused) = run(Effect::Read, vec![exception(252)]);
        assert!(result.is_err());
        assert_eq!(sent, 8);
        assert!(
            paused > Duration::from_secs(1) && paused < Duration::from_secs(10),
            "{paused:?}"
        );
    }
}
