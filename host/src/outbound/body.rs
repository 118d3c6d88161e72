//! A response's body that must neither stall nor go on for ever: the time between two pieces of it is bounded, and the size.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};
use wasmtime_wasi_http::{Error, WasiBody};

use crate::policy::Denied;

/// What one call sends and gets.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) requests: AtomicU32,
    /// Bytes of bodies whose length was known.
    pub(crate) sent: AtomicU64,
    /// Bytes of bodies.
    pub(crate) received: AtomicU64,
    /// Why no address of the origin was dialled, if that was not allowed.
    pub(crate) denied: OnceLock<Denied>,
}

impl Traffic {
    pub(super) fn count(&self, request: Request<WasiBody>) -> Request<WasiBody> {
        self.requests.fetch_add(1, Relaxed);
        let length = request.headers().get(http::header::CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        self.sent.fetch_add(length.unwrap_or_default(), Relaxed);
        request
    }
}

pub(super) struct LimitedBody {
    inner: Incoming,
    between_bytes: Duration,
    /// Made when the body is first waited for, which a short one never is.
    timer: Option<Pin<Box<Sleep>>>,
    /// How many bytes may still come, of how many.
    rest: u64,
    most: u64,
    traffic: Option<Arc<Traffic>>,
    /// What lets others send: given back with the body.
    turns: Vec<OwnedSemaphorePermit>,
}

impl LimitedBody {
    /// `turn` is the connection's.
    pub(super) fn new(
        inner: Incoming,
        between_bytes: Duration,
        most: u64,
        turn: OwnedSemaphorePermit,
    ) -> LimitedBody {
        LimitedBody {
            inner,
            between_bytes,
            timer: None,
            rest: most,
            most,
            traffic: None,
            turns: vec![turn],
        }
    }

    pub(super) fn counted(mut self, traffic: Arc<Traffic>, turn: OwnedSemaphorePermit) -> Self {
        self.traffic = Some(traffic);
        self.turns.push(turn);
        self
    }

    fn take(&mut self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, Error> {
        let length = frame.data_ref().map_or(0, |data| data.len() as u64);
        if let Some(traffic) = &self.traffic {
            traffic.received.fetch_add(length, Relaxed);
        }
        self.rest = self
            .rest
            .checked_sub(length)
            .ok_or(Error::HttpResponseBodySize(Some(self.most)))?;
        Ok(frame)
    }
}

impl Body for LimitedBody {
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
            return Poll::Ready(frame.map(|frame| match frame {
                Ok(frame) => this.take(frame),
                // The connection broke in the middle: the response is not whole.
                Err(_) => Err(Error::HttpResponseIncomplete),
            }));
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
