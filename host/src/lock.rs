//! Leases for people who hold them: waiting, a heartbeat, and knowing at once when one is lost.

use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use uuid::Uuid;

use crate::backend::Backend;
use crate::bindings::exports::pipeline::state::locks;
use crate::bindings::pipeline::state::types as wit;
use crate::{Error, Outcome, StateId, text};

/// The end of the year 9999, in milliseconds since 1970.
const LATEST_MS: u64 = 253_402_300_799_000;
/// How long a lease lasts unless it is renewed, unless told otherwise.
const TTL: Duration = Duration::from_secs(30);
/// A lease is renewed after a third of its time, and after this time at the latest: then it is soon known that it was broken.
const LONGEST_HEARTBEAT: Duration = Duration::from_secs(10);
/// How many tries of a renewal that get no answer fit into the time of a lease.
const TRIES: u32 = 6;
/// How long somebody who gives up waiting for a lease waits until it is certain that none is left behind.
const LONGEST_FAREWELL: Duration = Duration::from_secs(2);
/// When less than this is left, a write under the lease may have renewed it (see the contract's `release`).
const RENEWED_BY_WRITES: Duration = Duration::from_secs(2);
/// The first pause between two attempts to acquire a lease, or to renew it; each is longer than the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

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
        let time = |ms: u64| {
            humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(ms.min(LATEST_MS)))
        };
        match self.owner.is_empty() {
            true => out.write_str("somebody without a name")?,
            false => out.write_str(&text::line(&self.owner))?,
        }
        write!(
            out,
            " since {}, until {} unless renewed (token {})",
            time(self.acquired_at_ms),
            time(self.expires_at_ms),
            text::line(&self.token)
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
    /// renewed after a third of that, or 10 s.
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
        let token = Uuid::new_v4().simple().to_string();
        let request = locks::Request {
            token: token.clone(),
            ttl_ms: milliseconds(self.ttl),
            owner: self.owner.clone(),
        };
        let mut pause = FIRST_PAUSE;
        // Whoever drops this while it waits for an answer does not hold the lease.
        let mut doubt = Doubt {
            backend: self.backend.clone(),
            id: self.id.clone(),
            token,
            is_there: false,
        };
        loop {
            // The store begins to count after this moment.
            let expires = after(self.ttl);
            let before = doubt.is_there;
            doubt.is_there = true;
            let attempt = self.backend.acquire_lease(&self.id, &request);
            let error = match timeout_at(expires, attempt).await {
                Ok(Ok(lease)) if Instant::now() < expires => {
                    doubt.is_there = false;
                    return Ok(Lease::new(self, lease, expires));
                }
                Ok(Err(error)) => error,
                Ok(Ok(_)) | Err(_) => Error::TimedOut {
                    message: "the lease had ended before the store's answer came".to_owned(),
                    outcome: Outcome::Unknown,
                },
            };
            doubt.is_there = before || error.outcome() == Outcome::Unknown;
            let passes = matches!(
                error,
                Error::Locked { .. } | Error::Unavailable { .. } | Error::TimedOut { .. }
            );
            if !passes || Instant::now() >= deadline {
                doubt.end().await;
                return Err(error);
            }
            let rest = deadline.saturating_duration_since(Instant::now());
            sleep(pause.min(rest)).await;
            pause = (pause * 3 / 2).min(LONGEST_PAUSE);
        }
    }
}

/// A lease that the store may have given while its answer was lost. Nobody would get it before its end, so it is ended as far
/// as that is possible.
struct Doubt {
    backend: Backend,
    id: StateId,
    token: String,
    is_there: bool,
}

impl Doubt {
    async fn end(&mut self) {
        if self.is_there {
            let end = self.backend.break_lease(&self.id, &self.token);
            let _ends_by_itself = timeout(LONGEST_FAREWELL, end).await;
            self.is_there = false;
        }
    }
}

impl Drop for Doubt {
    fn drop(&mut self) {
        if !self.is_there {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            let (backend, id) = (self.backend.clone(), self.id.clone());
            let token = std::mem::take(&mut self.token);
            runtime.spawn(async move { backend.break_lease(&id, &token).await });
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
    life: watch::Sender<Life>,
    /// Of each write that was refused.
    refused: Arc<Notify>,
}

/// What is known of a lease.
struct Current {
    lease: wit::Lease,
    /// Whether it is as the store has it: not where a renewal failed, which may have been stored all the same.
    certain: bool,
}

/// Whether it is held still.
#[derive(Clone, Debug)]
enum Life {
    /// Unless this moment is past.
    Until(Instant),
    /// Somebody else has it, or nobody.
    Lost(Option<Holder>),
}

impl Life {
    /// Why it is lost, if it is. It could not be renewed in time where nobody is known to have it.
    fn lost(&self) -> Option<Error> {
        match self {
            Life::Until(end) => (Instant::now() >= *end).then_some(Error::Locked { holder: None }),
            Life::Lost(holder) => Some(Error::Locked {
                holder: holder.clone(),
            }),
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
            life: watch::Sender::new(Life::Until(expires)),
            refused: Arc::default(),
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
        self.shared
            .backend
            .under_held_lease(self.token(), &self.shared.refused)
    }

    /// Whether it is known to be lost, or its time is over by this machine's clock.
    pub fn is_lost(&self) -> bool {
        self.shared.life.borrow().lost().is_some()
    }

    /// Waits until it is lost, and says why: [`Error::Locked`] with who has it now, if anybody. What is done under a lease is to
    /// be given up then.
    pub async fn lost(&self) -> Error {
        let mut life = self.shared.life.subscribe();
        loop {
            let now = life.borrow_and_update().clone();
            if let Some(error) = now.lost() {
                return error;
            }
            let Life::Until(end) = now else { continue };
            tokio::select! {
                // The sender lives as long as this lease.
                _ = life.changed() => {}
                () = sleep_until(end) => {}
            }
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
        if let Ok(runtime) = Handle::try_current() {
            let shared = Arc::clone(&self.shared);
            // Where it fails, the lease ends by itself.
            runtime.spawn(async move { release(&shared).await });
        }
    }
}

async fn release(shared: &Shared) -> Result<(), Error> {
    let current = shared.current.lock().await;
    let end = match *shared.life.borrow() {
        Life::Until(end) if Instant::now() < end => end,
        _ => return Ok(()),
    };
    let untouched = end.saturating_duration_since(Instant::now()) > RENEWED_BY_WRITES;
    match current.certain && untouched {
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
async fn keep(shared: Arc<Shared>, mut end: Instant) {
    loop {
        tokio::select! {
            () = sleep(heartbeat(shared.ttl)) => {}
            // It is lost, or another state's was meant: to renew it tells.
            () = shared.refused.notified() => {}
        }
        let life = tokio::select! {
            // First: an answer that is heard later is too late, since everybody may have been told so.
            biased;
            () = sleep_until(end) => Life::Lost(None),
            renewed = renew(&shared) => renewed.map_or_else(Life::Lost, Life::Until),
        };
        shared.life.send_replace(life.clone());
        match life {
            Life::Until(later) => end = later,
            Life::Lost(_) => return,
        }
    }
}

fn heartbeat(ttl: Duration) -> Duration {
    (ttl / 3).min(LONGEST_HEARTBEAT)
}

/// Until when it lasts, or who has it instead. Tries again until somebody stops it.
async fn renew(shared: &Shared) -> Result<Instant, Option<Holder>> {
    let mut pause = FIRST_PAUSE;
    loop {
        let mut current = shared.current.lock().await;
        let before = current.certain;
        // Until it is answered: this may be dropped while it is on its way.
        current.certain = false;
        let end = after(shared.ttl);
        let renewal = shared
            .backend
            .renew_lease(&current.lease, milliseconds(shared.ttl));
        // One that hangs must not take the time of all others.
        match timeout(shared.ttl / TRIES, renewal).await {
            Ok(Ok(lease)) => {
                *current = Current {
                    lease,
                    certain: true,
                };
                return Ok(end);
            }
            Ok(Err(Error::Locked { holder })) => return Err(holder),
            Ok(Err(error)) => current.certain = before && error.outcome() == Outcome::NotApplied,
            Err(_) => {}
        }
        drop(current);
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_shown_in_one_line_whatever_it_calls_itself() {
        let holder = Holder {
            id: StateId::from("a"),
            token: "t".to_owned(),
            owner: "Zoë\nO'Hara\x1b[31m".to_owned(),
            acquired_at_ms: 0,
            renewed_at_ms: 0,
            expires_at_ms: u64::MAX,
        };
        assert_eq!(
            holder.to_string(),
            "Zoë\\nO'Hara\\u{1b}[31m since 1970-01-01T00:00:00Z, until 9999-12-31T23:59:59Z unless renewed (token t)"
        );
    }
}
