//! Leases for people who hold them: waiting, a heartbeat, and knowing at once when one is lost.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use crate::backend::Backend;
use crate::bindings::exports::pipeline::state::locks;
use crate::bindings::pipeline::state::types as wit;
use crate::{Error, Expectation, State, StateId, Version};

/// How long a lease lasts unless it is renewed, unless told otherwise.
const TTL: Duration = Duration::from_secs(30);
/// The first pause between two attempts to acquire a lease; each is longer than the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Who holds a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// Whose lease it is.
    pub id: StateId,
    /// What tells this lease from all others.
    pub token: String,
    /// Who holds it, in the holder's own words.
    pub owner: String,
    /// When it was acquired, by the store's clock, in milliseconds since 1970-01-01T00:00:00Z.
    pub acquired_at_ms: u64,
    /// When it ends unless it is renewed, likewise.
    pub expires_at_ms: u64,
}

impl fmt::Display for Holder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = if self.owner.is_empty() {
            "somebody"
        } else {
            &self.owner
        };
        write!(out, "{owner} (token {})", self.token)
    }
}

impl From<wit::Holder> for Holder {
    fn from(holder: wit::Holder) -> Holder {
        Holder {
            id: StateId::from(holder.id),
            token: holder.token,
            owner: holder.owner,
            acquired_at_ms: holder.acquired_at_ms,
            expires_at_ms: holder.expires_at_ms,
        }
    }
}

/// A lease that is to be acquired: awaiting it gives a [`Lease`], or [`Error::Locked`] with the holder.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = harness::ClickHouse::start()?;
/// # let plugins = pipeline_state::Plugins::builder().build().await?;
/// # let backend = plugins.open(&server.uri("x"), &pipeline_state::Settings::new())?;
/// use std::time::Duration;
/// use pipeline_state::{Error, State, StateId};
///
/// let id = StateId::from("dev:tap-a-to-target-b");
/// let lease = backend.lock(&id).owner("run 42").wait(Duration::from_secs(30)).await?;
/// assert!(matches!(backend.lock(&id).await, Err(Error::Locked { holder: Some(holder) }) if holder.owner == "run 42"));
///
/// // Renewed in the background until it is released or dropped. Writes by it are refused once it is lost.
/// lease.update(State { completed: None, partial: Some(r#"{"a": 1}"#.to_owned()) }).await?;
/// lease.release().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is acquired until it is awaited"]
pub struct Lock {
    backend: Backend,
    id: StateId,
    owner: String,
    ttl: Duration,
    wait: Duration,
}

impl Lock {
    pub(crate) fn new(backend: Backend, id: StateId) -> Lock {
        Lock {
            backend,
            id,
            owner: String::new(),
            ttl: TTL,
            wait: Duration::ZERO,
        }
    }

    /// Who holds it, for people: for example host, process and job. At most 1,024 bytes.
    pub fn owner(mut self, owner: impl Into<String>) -> Lock {
        self.owner = owner.into();
        self
    }

    /// After which time without a renewal somebody else may have it; 30 s unless told otherwise, from 1 s to 24 h.
    pub fn ttl(mut self, ttl: Duration) -> Lock {
        self.ttl = ttl;
        self
    }

    /// How long to wait for it where somebody else holds it; not at all unless told otherwise.
    pub fn wait(mut self, wait: Duration) -> Lock {
        self.wait = wait;
        self
    }

    async fn acquire(self) -> Result<Lease, Error> {
        let deadline = Instant::now() + self.wait;
        let request = locks::Request {
            ttl_ms: milliseconds(self.ttl),
            owner: self.owner.clone(),
        };
        let mut pause = FIRST_PAUSE;
        loop {
            // The store counts from a moment after this one.
            let expires = Instant::now() + self.ttl;
            match self.backend.acquire_lease(&self.id, &request).await {
                Ok(lease) => return Ok(Lease::hold(self, lease, expires)),
                Err(error @ Error::Locked { .. }) if Instant::now() + pause >= deadline => {
                    return Err(error);
                }
                Err(Error::Locked { .. }) => sleep(pause).await,
                Err(error) => return Err(error),
            }
            pause = (pause * 3 / 2).min(LONGEST_PAUSE);
        }
    }
}

impl IntoFuture for Lock {
    type Output = Result<Lease, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Lease, Error>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A lease that is held. It is renewed in the background for as long as this exists, and released when it is dropped,
/// as far as that is possible then; [`Lease::release`] tells whether it was.
pub struct Lease {
    shared: Arc<Shared>,
    heartbeat: JoinHandle<()>,
    released: bool,
}

struct Shared {
    backend: Backend,
    id: StateId,
    ttl: Duration,
    current: Mutex<wit::Lease>,
    /// Why it was lost.
    lost: watch::Sender<Option<Lost>>,
}

#[derive(Clone, Debug)]
enum Lost {
    /// Somebody else has it, or nobody.
    Taken(Option<Holder>),
    /// It could not be renewed in time.
    Expired,
}

impl Lost {
    fn error(self) -> Error {
        match self {
            Lost::Taken(holder) => Error::Locked { holder },
            Lost::Expired => Error::Locked { holder: None },
        }
    }
}

impl Lease {
    fn hold(lock: Lock, lease: wit::Lease, expires: Instant) -> Lease {
        let shared = Arc::new(Shared {
            backend: lock.backend,
            id: lock.id,
            ttl: lock.ttl,
            current: Mutex::new(lease),
            lost: watch::Sender::new(None),
        });
        let heartbeat = tokio::spawn(keep(Arc::clone(&shared), expires));
        Lease {
            shared,
            heartbeat,
            released: false,
        }
    }

    /// Whose lease it is.
    pub fn id(&self) -> &StateId {
        &self.shared.id
    }

    /// What tells it from all others: what [`Backend::break_lease`] asks for.
    pub fn token(&self) -> String {
        self.shared.current().token.clone()
    }

    /// Whether it is known to be lost.
    pub fn is_lost(&self) -> bool {
        self.shared.lost.borrow().is_some()
    }

    /// Waits until it is lost, and says why: [`Error::Locked`] with who has it now, if anybody. What is done under a lease is to
    /// be given up then.
    pub async fn lost(&self) -> Error {
        let mut lost = self.shared.lost.subscribe();
        match lost.wait_for(Option::is_some).await {
            Ok(lost) => lost.clone().unwrap_or(Lost::Expired).error(),
            // The sender lives as long as this lease.
            Err(_) => Lost::Expired.error(),
        }
    }

    /// Stores the state under this lease: refused once it is lost.
    ///
    /// # Errors
    ///
    /// As for [`Backend::set_if`], and [`Error::Locked`].
    pub async fn set(&self, state: State, expect: Expectation) -> Result<Version, Error> {
        let lease = self.live()?;
        self.shared
            .backend
            .set_under(self.id(), state, expect, Some(&lease))
            .await
    }

    /// Updates the state under this lease: refused once it is lost.
    ///
    /// # Errors
    ///
    /// As for [`Backend::update`], and [`Error::Locked`].
    pub async fn update(&self, state: State) -> Result<Version, Error> {
        let lease = self.live()?;
        self.shared
            .backend
            .update_under(self.id(), state, Some(&lease))
            .await
    }

    /// Deletes the state under this lease: refused once it is lost.
    ///
    /// # Errors
    ///
    /// As for [`Backend::delete_if`], and [`Error::Locked`].
    pub async fn delete(&self, expect: Expectation) -> Result<bool, Error> {
        let lease = self.live()?;
        self.shared
            .backend
            .delete_under(self.id(), expect, Some(&lease))
            .await
    }

    fn live(&self) -> Result<wit::Lease, Error> {
        match self.shared.lost.borrow().clone() {
            Some(lost) => Err(lost.error()),
            None => Ok(self.shared.current().clone()),
        }
    }

    /// Gives it back. One that is lost already needs no giving back.
    ///
    /// # Errors
    ///
    /// As for [`Backend::set`]; then it ends by itself, after its time.
    pub async fn release(mut self) -> Result<(), Error> {
        self.released = true;
        self.heartbeat.abort();
        if self.is_lost() {
            return Ok(());
        }
        let lease = self.shared.current().clone();
        self.shared.backend.release_lease(&lease).await
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.heartbeat.abort();
        if self.released || self.is_lost() {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let shared = Arc::clone(&self.shared);
            runtime.spawn(async move {
                let lease = shared.current().clone();
                // Where it fails, the lease ends by itself, after its time.
                let _ = shared.backend.release_lease(&lease).await;
            });
        }
    }
}

impl Shared {
    fn current(&self) -> MutexGuard<'_, wit::Lease> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Renews a lease three times in its life, so that two renewals may fail.
async fn keep(shared: Arc<Shared>, mut expires: Instant) {
    loop {
        sleep(shared.ttl / 3).await;
        let lost = tokio::select! {
            renewed = renew(&shared) => match renewed {
                Ok(until) => {
                    expires = until;
                    continue;
                }
                Err(holder) => Lost::Taken(holder),
            },
            () = sleep_until(expires) => Lost::Expired,
        };
        shared.lost.send_replace(Some(lost));
        return;
    }
}

/// Until when it lasts, or who has it instead. Tries again until somebody stops it.
async fn renew(shared: &Shared) -> Result<Instant, Option<Holder>> {
    let mut pause = FIRST_PAUSE;
    loop {
        let until = Instant::now() + shared.ttl;
        let lease = shared.current().clone();
        match shared
            .backend
            .renew_lease(&lease, milliseconds(shared.ttl))
            .await
        {
            Ok(lease) => {
                *shared.current() = lease;
                return Ok(until);
            }
            Err(Error::Locked { holder }) => return Err(holder),
            Err(_passing) => sleep(pause).await,
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
