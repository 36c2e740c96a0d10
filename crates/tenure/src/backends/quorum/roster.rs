//! Which server each node is, since when, with which clock; and so whether its vote counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing::{info, warn};

use super::rules::{self, LeaseReport, RestartEvidence};
use crate::backend::{InUse, Server, Standing};
use crate::clock::{Clock, Instant};
use crate::name::Token;

/// Clocks that differ by more are reported.
const CLOCKS_DIFFER: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Roster {
    clock: Clock,
    /// Whether a node that has restarted may have forgotten locks.
    pub(super) quarantine: bool,
    /// The lease that is expected to be in use by all.
    usual: Duration,
    /// How long telling all nodes of a lease may take.
    slack: Duration,
    /// The longest lease that this client uses, in milliseconds.
    longest: AtomicU64,
    /// By their number in the list.
    servers: Mutex<Vec<Option<KnownServer>>>,
}

/// The server of a node when it was last identified.
#[derive(Debug, Clone)]
struct KnownServer {
    id: String,
    connection: u64,
    /// For how long it had forgotten nothing at some moment, if it may have forgotten something before.
    up: Option<(Duration, Instant)>,
    /// The longest lease that was known to the server before it at this node, if this client knew that one.
    predecessor: Option<Duration>,
    /// The longest lease that it may have forgotten. Not known until the others were asked.
    forgotten: Option<Duration>,
    identified: Instant,
    leases: Vec<InUse>,
    /// What this client has named.
    longest: Duration,
    /// Its wall clock less the lease clock of this client, in microseconds, and how far off that may be.
    ahead: i64,
    give_or_take: Duration,
    /// Whether it was reported that its clock differs.
    differs: bool,
}

impl KnownServer {
    fn up_at(&self, now: Instant) -> Option<Duration> {
        self.up.map(|(up, then)| up + now.since(then))
    }

    /// The leases that it knows of, and for how long they have been in use.
    fn report(&self, now: Instant) -> LeaseReport {
        let older = now.since(self.identified);
        let leases = self.leases.iter().map(|one| InUse { for_long: one.for_long + older, ..*one }).collect();
        LeaseReport { up: self.up_at(now), leases }
    }
}

fn micros(at: Instant) -> i64 {
    i64::try_from(at.as_nanos() / 1000).unwrap_or(i64::MAX)
}

impl Roster {
    pub(super) fn new(n: usize, clock: Clock, quarantine: bool, lease: Duration, timeout: Duration) -> Self {
        let (longest, servers) = (AtomicU64::new(0), Mutex::new(vec![None; n]));
        // The age of a server may be cut to whole seconds.
        let slack = timeout.saturating_add(Duration::from_secs(1));
        let roster = Self { clock, quarantine, usual: lease, slack, longest, servers };
        roster.lengthen(lease);
        roster
    }

    fn servers(&self) -> MutexGuard<'_, Vec<Option<KnownServer>>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The longest lease that this client uses.
    pub(super) fn longest(&self) -> Duration {
        Duration::from_millis(self.longest.load(Ordering::Relaxed))
    }

    pub(super) fn lengthen(&self, lease: Duration) {
        let millis = lease.as_nanos().div_ceil(1_000_000);
        self.longest.fetch_max(u64::try_from(millis).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Whether a node's server is the one that answers over this connection, and knows of leases as long as this.
    pub(super) fn knows(&self, node: usize, connection: u64, lease: Duration) -> bool {
        self.servers()[node].as_ref().is_some_and(|known| known.connection == connection && known.longest >= lease)
    }

    /// Notes how a server identified itself to this client, which named its `longest` lease.
    pub(super) fn note(&self, name: &str, node: usize, server: Server, longest: Duration, (asked, heard): (Instant, Instant)) {
        let give_or_take = heard.since(asked) / 2;
        let Server { id, up, clock_micros, leases, connection, .. } = server;
        let ahead = i64::try_from(clock_micros).unwrap_or(i64::MAX).saturating_sub(micros(asked.after(give_or_take)));
        let mut servers = self.servers();
        let before = servers[node].take();
        let known = KnownServer {
            id,
            connection,
            up: up.map(|up| (up, heard)),
            predecessor: None,
            forgotten: None,
            identified: asked,
            leases,
            longest,
            ahead,
            give_or_take,
            differs: before.as_ref().is_some_and(|before| before.differs),
        };
        servers[node] = Some(match before {
            // Not by what it says of its age now, which follows its wall clock.
            Some(KnownServer { id, up, predecessor, forgotten, .. }) if id == known.id => {
                KnownServer { up, predecessor, forgotten, ..known }
            }
            Some(before) => {
                warn!(node = name, "restarted or replaced: its vote does not count until the longest lease in use has passed");
                // A server that was started since is the same one, restarted. Any other has taken over with what it had.
                let up = up.map(|up| (if up <= asked.since(before.identified) { up } else { Duration::ZERO }, heard));
                let predecessor =
                    before.leases.iter().map(|one| one.lease).max().max(before.predecessor).max(Some(before.longest));
                KnownServer { up, predecessor, ..known }
            }
            None => known,
        });
        self.watch_clock(name, node, &mut servers);
    }

    /// Notes that all nodes were identified at this moment, except the silent ones: now it is known which leases the restarted ones may
    /// have forgotten. A node that did not answer within the timeout of a call is not silent, it has nothing to say.
    pub(super) fn asked_around(&self, at: Instant, silent: &[bool]) {
        let now = self.clock.now();
        let mut servers = self.servers();
        let fresh =
            |known: &Option<KnownServer>| known.as_ref().filter(|known| known.identified >= at).map(|known| known.report(now));
        let reports: Vec<Option<LeaseReport>> = servers.iter().map(fresh).collect();
        // What this client remembers itself, of its own leases and of all others that it has heard of.
        let heard = servers.iter().flatten().flat_map(|known| &known.leases).map(|one| one.lease).max();
        let remembered = heard.unwrap_or_default().max(self.longest());
        let nodes = servers.len();
        for (node, known) in servers.iter_mut().enumerate() {
            let Some(known) = known else { continue };
            // One that was started while the others were asked is for the next time.
            let Some(up) = known.up_at(now).filter(|up| *up >= now.since(at)) else { continue };
            if known.forgotten.is_some_and(|lease| rules::quarantine_left(up, lease).is_none()) {
                continue;
            }
            let others = (0..nodes).filter(|other| *other != node);
            let silent = others.clone().filter(|other| silent[*other]).count();
            let others = others.filter_map(|other| reports[other].as_ref()).collect();
            let own = known.predecessor.map_or(Duration::ZERO, |predecessor| remembered.max(predecessor));
            let evidence = RestartEvidence { up, nodes, others, silent, slack: self.slack };
            if let Some(lease) = evidence.may_have_forgotten(self.usual) {
                known.forgotten = known.forgotten.max(Some(lease.max(own)));
            }
        }
    }

    /// Whether it is not known yet what a restarted node may have forgotten.
    pub(super) fn is_undecided(&self) -> bool {
        let now = self.clock.now();
        let is_young = |known: &KnownServer| known.up_at(now).is_some_and(|up| up < rules::MATURE);
        self.quarantine && self.servers().iter().flatten().any(|known| known.forgotten.is_none() && is_young(known))
    }

    /// What to propose as the next token.
    pub(super) fn proposal(&self) -> Option<Token> {
        let now = micros(self.clock.now());
        let at = |known: &KnownServer| u64::try_from(now.saturating_add(known.ahead)).unwrap_or(0);
        let mut clocks: Vec<u64> = self.servers().iter().flatten().map(at).collect();
        rules::proposal(&mut clocks)
    }

    /// Why a node's vote does not count, if it is known to be one that does not.
    pub(super) fn objection(&self, node: usize) -> Option<Standing> {
        let now = self.clock.now();
        let servers = self.servers();
        let known = servers[node].as_ref()?;
        let same = servers[..node].iter().position(|other| other.as_ref().is_some_and(|other| other.id == known.id));
        if let Some(same) = same {
            let why = format!("is the same server as node {} of the list ({})", same + 1, known.id);
            return Some(Standing::Refused { why });
        }
        let up = known.up_at(now).filter(|_| self.quarantine)?;
        let left = match known.forgotten {
            Some(lease) => rules::quarantine_left(up, lease),
            None => Some(self.longest()),
        };
        left.map(|left| Standing::Quarantined { left })
    }

    pub(super) fn has_heard_of(&self, node: usize) -> bool {
        self.servers()[node].is_some()
    }

    /// How far a node's clock is ahead of the one in the middle, in milliseconds.
    pub(super) fn clock_ahead(&self, node: usize) -> Option<i64> {
        clock_ahead(&self.servers(), node).map(|(ahead, _)| ahead)
    }

    /// Reports a clock that differs from the others', once, and once when it no longer does.
    fn watch_clock(&self, name: &str, node: usize, servers: &mut [Option<KnownServer>]) {
        let Some((ahead, give_or_take)) = clock_ahead(servers, node) else { return };
        let Some(known) = &mut servers[node] else { return };
        let differs = u128::from(ahead.unsigned_abs()) > (CLOCKS_DIFFER + give_or_take).as_millis();
        if differs && !known.differs {
            warn!(node = name, clock_ahead_ms = ahead, "its clock differs from the others': locks end there at another time");
        } else if !differs && known.differs {
            info!(node = name, clock_ahead_ms = ahead, "its clock agrees with the others' again");
        }
        known.differs = differs;
    }
}

/// In milliseconds, and how far off that may be.
fn clock_ahead(servers: &[Option<KnownServer>], node: usize) -> Option<(i64, Duration)> {
    let mine = servers[node].as_ref()?;
    let mut all: Vec<i64> = servers.iter().flatten().map(|known| known.ahead).collect();
    all.sort_unstable();
    let middle = all.get(all.len() / 2)?;
    let most = servers.iter().flatten().map(|known| known.give_or_take).max().unwrap_or_default();
    Some((mine.ahead.saturating_sub(*middle) / 1000, most))
}
