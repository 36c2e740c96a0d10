//! A scene that two stories share: A's lock has expired, B holds it now, and A releases what it believes is its own.

use std::time::Duration;

use crate::actor::Actor;
use crate::error::Result;
use crate::locks::LOCK;
use crate::protocol::LockSpec;
use crate::server::Server;
use crate::story::Outcome;
use crate::testbed::{SALE, Testbed};
use crate::virtual_address::HasPort;

/// How long A's lock lasts, in milliseconds as Redis has it.
pub(super) const TTL: &str = "600";
pub(super) const LEASE: Duration = Duration::from_millis(600);
/// For B and C, which may wait long.
pub(super) const LONG: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(5);

/// Locks as Redis's own page has it, for so many milliseconds.
pub(super) fn set(actor: &mut Actor, server: &impl HasPort, ttl: &str) -> Result<bool> {
    let name = actor.name.clone();
    let granted = actor.redis(server, &["SET", LOCK, &name, "NX", "PX", ttl])?.is_yes();
    if granted {
        actor.granted()?;
    }
    Ok(granted)
}

/// The naive end: A sends a plain DEL, which hits B's lock; C gets in beside B.
pub(super) fn deletes_the_lock_of_another(testbed: &Testbed, server: &Server, mut a: Actor, verdict: &str) -> Result<Outcome> {
    let (mut b, mut c) = (testbed.actor("B")?, testbed.actor("C")?);
    testbed.until_gone(server, LOCK)?;
    let b_is_in = set(&mut b, server, "10000")?;
    let seen_by_b = b.look()?;
    testbed.work(SALE);
    let deleted = a.redis(server, &["DEL", LOCK])?.is_yes();
    a.give_back()?;
    let c_is_in = set(&mut c, server, "10000")?;
    let seen_by_c = c.look()?;
    testbed.work(SALE);
    b.sell()?;
    testbed.work(SALE);
    c.sell()?;
    let sales = testbed.sales()?;
    Ok(Outcome::new(verdict)
        .claim("A deletes the lock of B", b_is_in && deleted)
        .claim("C is let in beside B, and both see the last unit", c_is_in && (seen_by_b, seen_by_c) == (1, 1))
        .claim("the last unit is sold twice", sales.oversold() == 1))
}

/// A gives back with a check and a deletion in one step: B keeps its lock, and C waits for it. `short` is A's lock, and `long` that
/// of the others.
pub(super) fn gives_back_only_its_own(
    testbed: &Testbed,
    server: &Server,
    [short, long]: [&LockSpec; 2],
    verdict: &str,
) -> Result<Outcome> {
    let [mut a, mut b, mut c] = testbed.actors(["A", "B", "C"], long)?;
    let tells = matches!(short, LockSpec::Tenure(_));
    let a_was_in = a.try_take(short)?;
    testbed.until_gone(server, LOCK)?;
    if tells {
        testbed.until("A is told that its lease has ended", || Ok(a.was_told()))?;
    }
    let b_is_in = b.try_take(long)?;
    testbed.work(SALE);
    let was_its_own = a.give_back()?;
    a.did("gives back: it is not its own any more, and stays");
    let c_is_in = c.try_take(long)?;
    testbed.let_wait(&mut c, long, PATIENCE)?;
    let seen_by_b = b.look()?;
    testbed.work(SALE);
    b.sell()?;
    let b_was_in = b.give_back()?;
    let c_is_next = c.taken()?;
    let seen_by_c = c.look()?;
    testbed.work(SALE);
    c.give_back()?;
    let sales = testbed.sales()?;
    Ok(Outcome::new(verdict)
        .claim("A's release comes too late, and A knows it", a_was_in && !was_its_own)
        .claim("B keeps its lock to the end", b_is_in && b_was_in)
        .claim("C waits for B, and sees that nothing is left", !c_is_in && c_is_next && (seen_by_b, seen_by_c) == (1, 0))
        .claim("the unit is sold once", (sales.sold, sales.stale) == (1, 0)))
}
