//! A response's body that must not stall: the time between two pieces of it is bounded.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};
use wasmtime_wasi_http::Error;

pub(super) struct TimedBody {
    inner: Incoming,
    between_bytes: Duration,
    /// Made when the body is first waited for, which a short one never is.
    timer: Option<Pin<Box<Sleep>>>,
}

impl TimedBody {
    pub(super) fn new(inner: Incoming, between_bytes: Duration) -> TimedBody {
        TimedBody {
            inner,
            between_bytes,
            timer: None,
        }
    }
}

impl Body for TimedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(context) {
            if let Some(timer) = &mut this.timer {
                timer.as_mut().reset(Instant::now() + this.between_bytes);
            }
            // The connection broke in the middle: the response is not whole.
            return Poll::Ready(
                frame.map(|frame| frame.map_err(|_| Error::HttpResponseIncomplete)),
            );
        }
        let timer = this
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(this.between_bytes)));
        ready!(timer.as_mut().poll(context));
        Poll::Ready(Some(Err(Error::ConnectionReadTimeout)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
