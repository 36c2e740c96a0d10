//! Redlock, and a node that restarts without its data.

use std::time::Duration;

use super::two_majorities::{C, Nodes, two_majorities};
use crate::actor::Actor;
use crate::error::{Cause, Result};
use crate::protocol::LockSpec;
use crate::redis_server::Setup;
use crate::story::{Kind, Outcome, Story, Way};
use crate::testbed::{SALE, Testbed};
use crate::timeline::Moment;

/// Renewed at a third of it.
const TTL: Duration = Duration::from_secs(3);
const LONG: Duration = Duration::from_secs(20);
/// For as long as this a node does not count that may have forgotten.
const LEASE: Duration = Duration::from_secs(1);
/// The operator's rule waits for that long.
const LATER: Duration = Duration::from_millis(1500);
const PATIENCE: Duration = Duration::from_secs(15);

pub(crate) static STORY: Story = Story {
    id: "F11",
    title: "Redlock: a node restarts without its data",
    lesson: "A node that has forgotten its vote must not vote again while somebody may still rely on it.",
    stock: 1,
    ways: &[
        Way { kind: Kind::Naive, how: "Redlock on five servers", play: naive },
        Way { kind: Kind::Usual, how: "Redlock, renewed", play: renewed },
        Way { kind: Kind::Usual, how: "Redlock; the node is started a TTL later, by hand", play: started_later },
        Way { kind: Kind::Tenure, how: "quorum of five", play: with_tenure },
    ],
};

fn naive(testbed: &Testbed) -> Result<Outcome> {
    let nodes = Nodes::start(testbed, |_| Setup::default())?;
    let verdict = "node 3 has forgotten A's vote, and gives it to B: two majorities";
    two_majorities(testbed, &nodes, nodes.redlock(LONG, false), || restarts(testbed, &nodes), verdict)
}

fn renewed(testbed: &Testbed) -> Result<Outcome> {
    let nodes = Nodes::start(testbed, |_| Setup::default())?;
    let verdict = "A's renewal finds two nodes of five, gives up, and tells nobody";
    two_majorities(testbed, &nodes, nodes.redlock(TTL, true), || restarts(testbed, &nodes), verdict)
}

fn started_later(testbed: &Testbed) -> Result<Outcome> {
    let nodes = Nodes::start(testbed, |_| Setup::default())?;
    let [of_a, of_b] = nodes.redlock(LATER, false);
    let (mut a, mut b) = (testbed.actor("A")?, testbed.actor("B")?);
    let first = a.try_take(&of_a)?;
    let seen = a.look()?;
    kill(testbed, &nodes)?;
    let early = b.try_take(&of_b)?;
    sells(testbed, &mut a)?;
    // The operator's rule: the longest TTL, from the crash on.
    testbed.work(LATER);
    start(testbed, &nodes)?;
    let a_has_ended = !a.is_held()?;
    let granted = b.try_take(&of_b)?;
    let left = b.look()?;
    b.give_back()?;
    let sales = testbed.sales()?;
    Ok(Outcome::new("while node 3 is down B has no majority, and later A's time is over: enough, if everybody sticks to it")
        .claim("A has the lock, and B gets no majority without node 3", first && seen == 1 && !early)
        .claim("B is granted the lock when A's time is over, and sees that nothing is left", a_has_ended && granted && left == 0)
        .claim("the unit is sold once", (sales.sold, sales.stale) == (1, 0)))
}

fn with_tenure(testbed: &Testbed) -> Result<Outcome> {
    let nodes = Nodes::start(testbed, |_| Setup::default())?;
    let [of_a, of_b] = nodes.quorum(LEASE);
    let (mut a, mut b) = (testbed.actor("A")?, testbed.actor("B")?);
    a.prepare(&of_a)?;
    b.prepare(&of_b)?;
    // Servers that were just started do not count for a lease either.
    let first = a.take(&of_a, PATIENCE)?;
    let seen = a.look()?;
    testbed.work(SALE);
    restarts(testbed, &nodes)?;
    let early = asks_until_told(testbed, &mut b, &of_b)?;
    // On a machine that stood still for a lease, A's time may be over by now, and the unit is B's.
    let sold = if early { not_both(&mut a)? && b.look()? == 1 && b.sell()? } else { a.sell()? };
    let granted = early || b.take(&of_b, PATIENCE)?;
    let never_both = not_both(&mut a)?;
    let left = b.look()?;
    b.give_back()?;
    let verdict = "node 3 is in quarantine for a lease: B has no majority as long as A may rely on it";
    Ok(Outcome::new(verdict)
        .claim("A has the lock and sees the unit", first && seen == 1)
        .claim("B is granted the lock, and not before A knows that its own is over", granted && never_both)
        .claim("the unit is sold once, and B sees that nothing is left", sold && testbed.sales()?.sold == 1 && left == 0))
}

/// B asks until it is told that a node may have forgotten locks, or has the lock: by then A's time is over.
fn asks_until_told(testbed: &Testbed, b: &mut Actor, lock: &LockSpec) -> Result<bool> {
    let mut granted = false;
    testbed.until("B is told that a node may have forgotten locks", || match b.try_take_or_why(lock)? {
        Ok(taken) => {
            granted = taken;
            Ok(taken)
        }
        Err(why) => Ok(why.cause == Cause::Forgetful),
    })?;
    Ok(granted)
}

fn not_both(a: &mut Actor) -> Result<bool> {
    Ok(!a.is_held()?)
}

fn restarts(testbed: &Testbed, nodes: &Nodes) -> Result<()> {
    kill(testbed, nodes)?;
    start(testbed, nodes)
}

fn kill(testbed: &Testbed, nodes: &Nodes) -> Result<()> {
    nodes.servers[C].kill()?;
    testbed.mark(nodes.lanes[C], Moment::Killed, "dies");
    Ok(())
}

fn start(testbed: &Testbed, nodes: &Nodes) -> Result<()> {
    nodes.servers[C].restart()?;
    testbed.mark(nodes.lanes[C], Moment::Did, "is back, with nothing");
    testbed.watch_again(&nodes.servers[C], nodes.lanes[C])
}

fn sells(testbed: &Testbed, actor: &mut Actor) -> Result<()> {
    testbed.work(SALE);
    actor.sell().map(drop)
}
