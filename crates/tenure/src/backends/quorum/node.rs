//! One node: how it is asked, who it is, and whether its vote counts.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::OnceCell;
use tracing::{info, warn};

use super::NAME;
use super::rules::{self, Vote};
use super::words::words;
use crate::backend::{Attempt, Backend, Claim, Member, Server, Standing};
use crate::clock::{Clock, Instant};
use crate::error::{Error, Fault, Result};
use crate::name::Token;

/// Calls to one node that may be under way. One that does not answer is not asked without end.
const MOST_CALLS: usize = 512;
/// Clocks that differ by more are reported.
const CLOCKS_DIFFER: Duration = Duration::from_millis(500);

pub(super) type Open = dyn Fn() -> BoxFuture<'static, Result<Arc<dyn Backend>>> + Send + Sync;

/// What all nodes share.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) clock: Clock,
    /// The longest that a call to one node may be under way.
    pub(super) timeout: Duration,
    /// Whether a node that has restarted may have forgotten locks.
    pub(super) quarantine: bool,
    /// The longest lease that is in use, in milliseconds, by this client or another.
    longest: AtomicU64,
    /// Who the nodes are, by their place in the list.
    servers: Mutex<Vec<Option<Known>>>,
    /// When all nodes were last asked for the longest lease.
    asked_around: Mutex<Option<Instant>>,
}

impl Common {
    pub(super) fn new(n: usize, clock: Clock, timeout: Duration, quarantine: bool, lease: Duration) -> Self {
        let (longest, servers) = (AtomicU64::new(millis(lease)), Mutex::new(vec![None; n]));
        Self { clock, timeout, quarantine, longest, servers, asked_around: Mutex::default() }
    }

    pub(super) fn longest(&self) -> Duration {
        Duration::from_millis(self.longest.load(Ordering::Relaxed))
    }

    pub(super) fn lengthen(&self, lease: Duration) {
        self.longest.fetch_max(millis(lease), Ordering::Relaxed);
    }

    /// Takes note that all nodes were asked, of whom those have answered that can.
    pub(super) fn asked_around(&self, at: Instant) {
        *self.asked_around.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
    }

    fn servers(&self) -> MutexGuard<'_, Vec<Option<Known>>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What to propose as the next token.
    pub(super) fn proposal(&self) -> Option<Token> {
        let now = micros(self.clock.now());
        let mut clocks: Vec<u64> = self.servers().iter().flatten().map(|known| at(known.ahead, now)).collect();
        rules::proposal(&mut clocks)
    }
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

fn micros(at: Instant) -> i64 {
    i64::try_from(at.as_nanos() / 1000).unwrap_or(i64::MAX)
}

fn at(ahead: i64, now: i64) -> u64 {
    u64::try_from(now.saturating_add(ahead)).unwrap_or(0)
}

/// Who a node was when it was last asked.
#[derive(Debug, Clone)]
struct Known {
    id: String,
    session: u64,
    /// For how long it had forgotten nothing at some moment, if it may have forgotten something before.
    up: Option<(Duration, Instant)>,
    /// When it was first seen: who counts it must have asked the others since, of leases that it has forgotten.
    first_met: Instant,
    /// What this client has introduced itself with.
    longest: Duration,
    met: Instant,
    /// Its wall clock less the lease clock of this client, in microseconds, and how far off that may be.
    ahead: i64,
    give_or_take: Duration,
}

pub(super) struct Node {
    pub(super) name: String,
    place: usize,
    open: Box<Open>,
    backend: OnceCell<Arc<dyn Backend>>,
    common: Arc<Common>,
    under_way: AtomicUsize,
    /// What was wrong last.
    trouble: Mutex<Option<String>>,
    /// Whether its clock was found to differ.
    differs: Mutex<bool>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Counts a call for as long as it is under way.
struct UnderWay<'a>(&'a AtomicUsize);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Node {
    pub(super) fn new(name: String, place: usize, open: Box<Open>, common: &Arc<Common>) -> Arc<Self> {
        Arc::new(Self {
            name,
            place,
            open,
            backend: OnceCell::new(),
            common: Arc::clone(common),
            under_way: AtomicUsize::new(0),
            trouble: Mutex::new(Some("it has not been asked yet".to_owned())),
            differs: Mutex::new(false),
        })
    }

    /// The store, if it has been reached.
    pub(super) fn opened(&self) -> Option<&Arc<dyn Backend>> {
        self.backend.get()
    }

    /// Asks once, for as long as one call may take. The outcome of a call that fails is unknown, unless it says that it was not sent.
    pub(super) async fn call<T, F>(&self, doing: &str, ask: impl FnOnce(Arc<dyn Backend>) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let under_way = UnderWay(&self.under_way);
        if self.under_way.fetch_add(1, Ordering::Relaxed) >= MOST_CALLS {
            let detail = format!("not asked: {MOST_CALLS} calls to it are under way");
            return Err(Error::unavailable(NAME, doing, Fault::Timeout, detail));
        }
        let asked = async {
            let backend = self.backend.get_or_try_init(|| (self.open)()).await?;
            ask(Arc::clone(backend)).await
        };
        let late = |_| {
            let detail = format!("no answer within {:?}", self.common.timeout);
            Err(Error::unavailable(NAME, doing, Fault::Timeout, detail))
        };
        let answer = tokio::time::timeout(self.common.timeout, asked).await.unwrap_or_else(late);
        drop(under_way);
        self.note(answer.as_ref().err());
        answer
    }

    fn note(&self, error: Option<&Error>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = error.map(words);
    }

    /// Takes note that it has not answered in time, though it still may.
    pub(super) fn is_slow(&self, within: Duration) {
        let why = Some(format!("no answer within {within:?}"));
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// Asks for its vote. If another server may have answered than the one that is known, that is cleared up first.
    pub(super) async fn vote(&self, claim: &Claim) -> Result<Vote> {
        let answer = self.call("acquiring", |backend| async move {
            let answer = backend.acquire(claim).await?;
            if matches!(answer, Attempt::Granted { .. }) && !self.is_known(backend.session(), claim.lease) {
                self.meet(&*backend).await?;
            }
            Ok(answer)
        });
        Ok(match answer.await? {
            Attempt::Granted { .. } if self.objection().is_some() => Vote::Uncounted,
            Attempt::Granted { token, valid_for } => Vote::Yes { token, valid_for },
            Attempt::Busy { poll_within, holder } => Vote::No { poll_within, holder },
            // Nothing that a node of a quorum is asked for is answered so.
            Attempt::Done { .. } | Attempt::Collided { .. } => Vote::Unknown,
        })
    }

    fn is_known(&self, session: u64, lease: Duration) -> bool {
        let servers = self.common.servers();
        servers[self.place].as_ref().is_some_and(|known| known.session == session && known.longest >= lease)
    }

    /// Whether the answer that came over the present connection may count: `None` if so.
    pub(super) fn objection(&self) -> Option<Standing> {
        match self.standing() {
            Standing::Counts | Standing::Away { .. } => None,
            objection => Some(objection),
        }
    }

    /// Whether answers come from the server that is known.
    pub(super) fn is_current(&self) -> bool {
        self.opened().is_some_and(|backend| self.is_known(backend.session(), Duration::ZERO))
    }

    /// Asks who it is, and says who comes.
    pub(super) async fn introduce(&self) -> Result<()> {
        self.call("introducing", |backend| async move { self.meet(&*backend).await }).await
    }

    async fn meet(&self, backend: &dyn Backend) -> Result<()> {
        let Common { clock, .. } = &*self.common;
        let longest = self.common.longest();
        let asked = clock.now();
        let server = backend.introduce(longest).await?;
        let heard = clock.now();
        let give_or_take = heard.since(asked) / 2;
        if server.replica {
            let detail = "it is a replica: it only copies another one's votes";
            return Err(Error::backend(NAME, "introducing", Fault::ReadOnly, detail));
        }
        self.common.lengthen(server.longest);
        let ahead = i64::try_from(server.clock_micros).unwrap_or(i64::MAX).saturating_sub(micros(asked.after(give_or_take)));
        let up = self.up(&server, heard);
        let Server { id, session, .. } = server;
        {
            let mut servers = self.common.servers();
            let before = servers[self.place].as_ref().filter(|before| before.id == id).map(|before| before.first_met);
            let first_met = before.unwrap_or(asked);
            servers[self.place] = Some(Known { id, session, up, first_met, longest, met: asked, ahead, give_or_take });
        }
        self.watch_clock();
        Ok(())
    }

    /// For how long it has forgotten nothing: since it was started, or since it was found in the place of another one.
    fn up(&self, server: &Server, now: Instant) -> Option<(Duration, Instant)> {
        let up = server.up?;
        let before = self.common.servers()[self.place].clone();
        match before {
            // Not by what it says of its age, which follows its wall clock.
            Some(before) if before.id == server.id => before.up,
            Some(before) => {
                // One that was started since is the same place, restarted. Any other has taken it over with what it had.
                let up = if up <= now.since(before.met) { up } else { Duration::ZERO };
                let left = self.common.longest().saturating_sub(up);
                warn!(
                    node = self.name,
                    ?left,
                    "restarted or replaced: its vote does not count until the longest lease has passed"
                );
                Some((up, now))
            }
            None => {
                if let Some(left) = rules::quarantine_left(up, self.common.longest()).filter(|_| self.common.quarantine) {
                    info!(node = self.name, ?up, ?left, "started of late: its vote does not count yet");
                }
                Some((up, now))
            }
        }
    }

    /// Reports a clock that differs from the others', once, and once when it no longer does.
    fn watch_clock(&self) {
        let Some((ahead, give_or_take)) = self.clock_ahead() else { return };
        let differs = ahead.unsigned_abs() > millis(CLOCKS_DIFFER + give_or_take);
        let mut reported = self.differs.lock().unwrap_or_else(PoisonError::into_inner);
        if differs && !*reported {
            warn!(
                node = self.name,
                clock_ahead_ms = ahead,
                "its clock differs from the others': locks end there at another time"
            );
        } else if !differs && *reported {
            info!(node = self.name, clock_ahead_ms = ahead, "its clock agrees with the others' again");
        }
        *reported = differs;
    }

    /// How far its clock is ahead of the one in the middle, in milliseconds, and how far off that may be.
    fn clock_ahead(&self) -> Option<(i64, Duration)> {
        let servers = self.common.servers();
        let mine = servers[self.place].as_ref()?;
        let mut all: Vec<i64> = servers.iter().flatten().map(|known| known.ahead).collect();
        all.sort_unstable();
        let middle = all.get(all.len() / 2)?;
        let most = servers.iter().flatten().map(|known| known.give_or_take).max().unwrap_or_default();
        Some(((mine.ahead - middle) / 1000, most))
    }

    fn standing(&self) -> Standing {
        let now = self.common.clock.now();
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let servers = self.common.servers();
        let Some(known) = &servers[self.place] else {
            return Standing::Away { why: trouble.unwrap_or_else(|| "it has not said who it is".to_owned()) };
        };
        let is_twin = |other: &Option<Known>| other.as_ref().is_some_and(|other| other.id == known.id);
        if let Some(twin) = servers[..self.place].iter().position(is_twin) {
            return Standing::Refused { why: format!("it is the same server as node {} of the list ({})", twin + 1, known.id) };
        }
        if let Some((up, then)) = known.up.filter(|_| self.common.quarantine) {
            let asked_around = *self.common.asked_around.lock().unwrap_or_else(PoisonError::into_inner);
            let up = if asked_around >= Some(known.first_met) { up + now.since(then) } else { Duration::ZERO };
            if let Some(left) = rules::quarantine_left(up, self.common.longest()) {
                return Standing::Quarantined { left };
            }
        }
        trouble.map_or(Standing::Counts, |why| Standing::Away { why })
    }

    pub(super) fn member(&self) -> Member {
        Member { name: self.name.clone(), standing: self.standing(), clock_ahead_ms: self.clock_ahead().map(|(ahead, _)| ahead) }
    }
}
