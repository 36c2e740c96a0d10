//! Redlock, and a node that restarts without its data.

use std::time::Duration;

use super::majorities::{C, Nodes, two_majorities};
use crate::cmd::lab::actor::Actor;
use crate::cmd::lab::server::Setup;
use crate::cmd::lab::stage::{SALE, Stage};
use crate::cmd::lab::story::{Kind, Outcome, Story, Way};
use crate::cmd::lab::timeline::Moment;
use crate::cmd::lab::upset::{Played, Trouble};
use crate::cmd::lab::words::Lock;

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

fn naive(stage: &Stage) -> Played<Outcome> {
    let nodes = Nodes::start(stage, |_| Setup::default())?;
    let verdict = "node 3 has forgotten A's vote, and gives it to B: two majorities";
    two_majorities(stage, &nodes, nodes.redlock(LONG, false), || restarts(stage, &nodes), verdict)
}

fn renewed(stage: &Stage) -> Played<Outcome> {
    let nodes = Nodes::start(stage, |_| Setup::default())?;
    let verdict = "A's renewal finds two nodes of five, gives up, and tells nobody";
    two_majorities(stage, &nodes, nodes.redlock(TTL, true), || restarts(stage, &nodes), verdict)
}

fn started_later(stage: &Stage) -> Played<Outcome> {
    let nodes = Nodes::start(stage, |_| Setup::default())?;
    let [of_a, of_b] = nodes.redlock(LATER, false);
    let (mut a, mut b) = (stage.actor("A")?, stage.actor("B")?);
    let first = a.try_take(&of_a)?;
    let seen = a.look()?;
    kill(stage, &nodes)?;
    let early = b.try_take(&of_b)?;
    sells(stage, &mut a)?;
    // The operator's rule: the longest TTL, from the crash on.
    stage.work(LATER);
    start(stage, &nodes)?;
    let a_has_ended = !a.is_held()?;
    let granted = b.try_take(&of_b)?;
    let left = b.look()?;
    b.give_back()?;
    let sales = stage.sales()?;
    Ok(Outcome::new("while node 3 is down B has no majority, and later A's time is over: enough, if everybody sticks to it")
        .claim("A has the lock, and B gets no majority without node 3", first && seen == 1 && !early)
        .claim("B is granted the lock when A's time is over, and sees that nothing is left", a_has_ended && granted && left == 0)
        .claim("the unit is sold once", (sales.sold, sales.stale) == (1, 0)))
}

fn with_tenure(stage: &Stage) -> Played<Outcome> {
    let nodes = Nodes::start(stage, |_| Setup::default())?;
    let [of_a, of_b] = nodes.quorum(LEASE);
    let (mut a, mut b) = (stage.actor("A")?, stage.actor("B")?);
    a.prepare(&of_a)?;
    b.prepare(&of_b)?;
    // Servers that were just started do not count for a lease either.
    let first = a.take(&of_a, PATIENCE)?;
    let seen = a.look()?;
    stage.work(SALE);
    restarts(stage, &nodes)?;
    let early = asks_until_told(stage, &mut b, &of_b)?;
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
        .claim("the unit is sold once, and B sees that nothing is left", sold && stage.sales()?.sold == 1 && left == 0))
}

/// B asks until it is told that a node may have forgotten locks, or has the lock: by then A's time is over.
fn asks_until_told(stage: &Stage, b: &mut Actor, lock: &Lock) -> Played<bool> {
    let mut granted = false;
    stage.until("B is told that a node may have forgotten locks", || match b.try_take_or_why(lock)? {
        Ok(taken) => {
            granted = taken;
            Ok(taken)
        }
        Err(why) => Ok(why.trouble == Trouble::Forgetful),
    })?;
    Ok(granted)
}

fn not_both(a: &mut Actor) -> Played<bool> {
    Ok(!a.is_held()?)
}

fn restarts(stage: &Stage, nodes: &Nodes) -> Played<()> {
    kill(stage, nodes)?;
    start(stage, nodes)
}

fn kill(stage: &Stage, nodes: &Nodes) -> Played<()> {
    nodes.servers[C].kill()?;
    stage.mark(nodes.lanes[C], Moment::Killed, "dies");
    Ok(())
}

fn start(stage: &Stage, nodes: &Nodes) -> Played<()> {
    nodes.servers[C].restart()?;
    stage.mark(nodes.lanes[C], Moment::Did, "is back, with nothing");
    stage.watch_again(&nodes.servers[C], nodes.lanes[C])
}

fn sells(stage: &Stage, actor: &mut Actor) -> Played<()> {
    stage.work(SALE);
    actor.sell().map(drop)
}
