//! Leases for people who hold them: waiting, a heartbeat, and knowing at once when one is lost.

use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use crate::backend::Backend;
use crate::bindings::exports::pipeline::state::locks;
use crate::bindings::pipeline::state::types as wit;
use crate::{Error, StateId};

/// How long a lease lasts unless it is renewed, unless told otherwise.
const TTL: Duration = Duration::from_secs(30);
/// A lease is renewed so many times in its life, so that all but one of these may fail.
const HEARTBEATS: u32 = 3;
/// The first pause between two attempts to acquire a lease, or to renew it; each is longer than the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// A lease that somebody holds, as everybody may see it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// Whose lease it is.
    pub id: StateId,
    /// What tells this lease from all others; see [`Backend::break_lease`].
    pub token: String,
    /// Who holds it, in the holder's own words.
    pub owner: String,
    /// When it was acquired, by the store's clock, in milliseconds since 1970-01-01T00:00:00Z.
    pub acquired_at_ms: u64,
    /// When it was acquired or renewed last, likewise.
    pub renewed_at_ms: u64,
    /// When it ends unless it is renewed, likewise.
    pub expires_at_ms: u64,
}

impl fmt::Display for Holder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = match self.owner.is_empty() {
            true => "somebody without a name",
            false => &self.owner,
        };
        let time = |ms| humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(ms));
        write!(
            out,
            "{owner} since {}, until {} unless renewed (token {})",
            time(self.acquired_at_ms),
            time(self.expires_at_ms),
            self.token
        )
    }
}

impl From<wit::Lease> for Holder {
    fn from(lease: wit::Lease) -> Holder {
        Holder {
            id: StateId::from(lease.id),
            token: lease.token,
            owner: lease.owner,
            acquired_at_ms: lease.acquired_at_ms,
            renewed_at_ms: lease.renewed_at_ms,
            expires_at_ms: lease.expires_at_ms,
        }
    }
}

/// A lease that is to be acquired. Awaiting it gives a [`Lease`], or [`Error::Locked`] with the holder; [`Lock::hold`] holds it
/// around a piece of work. Meltano's `acquire_lock`.
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
///
/// let other = backend.lock(&id).await;
/// assert!(matches!(other, Err(Error::Locked { holder: Some(holder) }) if holder.owner == "run 42"));
///
/// // It is renewed in the background. What is written through it is refused once it is lost.
/// lease.backend().update(&id, State { completed: None, partial: Some(r#"{"a": 1}"#.to_owned()) }).await?;
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

    /// After which time without a renewal somebody else may have it: from 2 s to 24 h, 30 s unless told otherwise. It is
    /// renewed after a third of that.
    pub fn ttl(mut self, ttl: Duration) -> Lock {
        self.ttl = ttl;
        self
    }

    /// How long to wait for it where somebody else holds it, or the store can't be reached; not at all unless told otherwise.
    pub fn wait(mut self, wait: Duration) -> Lock {
        self.wait = wait;
        self
    }

    /// Acquires the lease, does some work, and releases the lease, however the work ends.
    ///
    /// The work is dropped at its next `await` once the lease is lost. It gets the store through which its writes are refused
    /// then: see [`Lease::backend`].
    ///
    /// # Errors
    ///
    /// That of the work, whatever becomes of the lease; [`Error::Locked`] where the lease can't be had, or was lost. If the work
    /// is done and the lease can't be released, that is no error: it ends by itself.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = harness::ClickHouse::start()?;
    /// # let plugins = pipeline_state::Plugins::builder().build().await?;
    /// # let backend = plugins.open(&server.uri("x"), &pipeline_state::Settings::new())?;
    /// # use pipeline_state::{Error, State, StateId};
    /// let id = StateId::from("dev:tap-a-to-target-b");
    /// let run = async |store: pipeline_state::Backend| {
    ///     let before = store.get(&id).await?;
    ///     assert!(before.is_none());
    ///     store.set(&id, State::from_json(r#"{"completed": {"a": 1}}"#)?).await
    /// };
    /// backend.lock(&id).owner("run 43").hold(run).await?;
    /// assert!(backend.holders("*").await?.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn hold<T, E: From<Error>>(
        self,
        work: impl AsyncFnOnce(Backend) -> Result<T, E>,
    ) -> Result<T, E> {
        let lease = self.await?;
        let done = tokio::select! {
            biased;
            done = work(lease.backend()) => done,
            lost = lease.lost() => Err(E::from(lost)),
        };
        let _ends_by_itself = lease.release().await;
        done
    }

    async fn acquire(self) -> Result<Lease, Error> {
        let deadline = after(self.wait);
        let request = locks::Request {
            ttl_ms: milliseconds(self.ttl),
            owner: self.owner.clone(),
        };
        let mut pause = FIRST_PAUSE;
        loop {
            // The store begins to count after this moment.
            let expires = after(self.ttl);
            let error = match self.backend.acquire_lease(&self.id, &request).await {
                Ok(lease) => return Ok(Lease::new(self, lease, expires)),
                Err(error) => error,
            };
            let passes = matches!(
                error,
                Error::Locked { .. } | Error::Unavailable { .. } | Error::TimedOut { .. }
            );
            if !passes || Instant::now() >= deadline {
                return Err(error);
            }
            let rest = deadline.saturating_duration_since(Instant::now());
            sleep(pause.min(rest)).await;
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

fn after(time: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
    Instant::now() + time.min(YEAR)
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A lease that is held. It is renewed in the background as long as this exists, and released when it is dropped, as far as
/// that is possible then; [`Lease::release`] tells whether it was.
pub struct Lease {
    shared: Arc<Shared>,
    heartbeat: JoinHandle<()>,
    released: bool,
}

struct Shared {
    backend: Backend,
    id: StateId,
    token: String,
    ttl: Duration,
    current: Mutex<Current>,
    /// Why it was lost, once it was.
    lost: watch::Sender<Option<Lost>>,
}

/// What is known of a lease.
struct Current {
    lease: wit::Lease,
    /// Whether it is as the store has it: not where a renewal failed, which may have been stored all the same.
    certain: bool,
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
    fn new(lock: Lock, lease: wit::Lease, expires: Instant) -> Lease {
        let shared = Arc::new(Shared {
            backend: lock.backend,
            id: lock.id,
            token: lease.token.clone(),
            ttl: lock.ttl,
            current: Mutex::new(Current {
                lease,
                certain: true,
            }),
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

    /// What tells it from all others: what [`Backend::under_lease`] and [`Backend::break_lease`] ask for.
    pub fn token(&self) -> &str {
        &self.shared.token
    }

    /// The store, with this lease: what is written through it is refused by the store once the lease has ended, also where this
    /// process was paused and has not noticed. See [`Backend::under_lease`].
    pub fn backend(&self) -> Backend {
        self.shared.backend.under_lease(self.token())
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

    /// Gives it back. One that is lost already needs no giving back.
    ///
    /// # Errors
    ///
    /// As for [`Backend::set`]; then it ends by itself, after its time.
    pub async fn release(mut self) -> Result<(), Error> {
        self.heartbeat.abort();
        let released = release(&self.shared).await;
        // Not before: where this is dropped meanwhile, it is released in the background.
        self.released = true;
        released
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.heartbeat.abort();
        if self.released {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let shared = Arc::clone(&self.shared);
            // Where it fails, the lease ends by itself.
            runtime.spawn(async move { release(&shared).await });
        }
    }
}

async fn release(shared: &Shared) -> Result<(), Error> {
    let current = shared.current.lock().await;
    if shared.lost.borrow().is_some() {
        return Ok(());
    }
    match current.certain {
        true => shared.backend.release_lease(&current.lease).await,
        // The store may have a later step of it: it is looked for.
        false => shared
            .backend
            .break_lease(&shared.id, &shared.token)
            .await
            .map(drop),
    }
}

/// Renews a lease until that does not succeed any more.
async fn keep(shared: Arc<Shared>, mut expires: Instant) {
    loop {
        sleep(shared.ttl / HEARTBEATS).await;
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
        let mut current = shared.current.lock().await;
        let before = current.certain;
        // Until it is answered: this may be dropped while it is on its way.
        current.certain = false;
        let until = after(shared.ttl);
        let renewed = shared
            .backend
            .renew_lease(&current.lease, milliseconds(shared.ttl))
            .await;
        match renewed {
            Ok(lease) => {
                *current = Current {
                    lease,
                    certain: true,
                };
                return Ok(until);
            }
            Err(Error::Locked { holder }) => return Err(holder),
            Err(error) => current.certain = before && error.outcome() == crate::Outcome::NotApplied,
        }
        drop(current);
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
