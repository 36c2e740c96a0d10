//! Redlock, and a node whose clock jumps.

use std::time::Duration;

use super::both_write::{Writes, both_write};
use super::two_majorities::{C, Nodes, two_majorities};
use crate::clock::{self, Clock};
use crate::error::Result;
use crate::locks::LOCK;
use crate::redis_server::Setup;
use crate::story::{Kind, Outcome, Story, Way};
use crate::testbed::{SALE, Testbed};
use crate::timeline::Moment;

const LEASE: Duration = Duration::from_secs(2);
/// Renewed at a third of it.
const TTL: Duration = Duration::from_secs(3);
const LONG: Duration = Duration::from_secs(20);
const JUMP: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) static STORY: Story = Story {
    id: "F12",
    title: "Redlock: the clock of a node jumps",
    lesson: "No lock that ends by itself is safe from clocks; a token is, as long as most clocks are about right.",
    stock: 1,
    ways: &[
        Way { kind: Kind::Naive, how: "Redlock on five servers", play: naive },
        Way { kind: Kind::Usual, how: "Redlock, renewed", play: renewed },
        Way { kind: Kind::Tenure, how: "quorum of five, with the token in each write", play: with_tenure },
    ],
};

fn naive(testbed: &Testbed) -> Result<Outcome> {
    redlock(testbed, false, "A's lock has run out at node 3, whose clock is an hour ahead, and B gets its vote: two majorities")
}

fn renewed(testbed: &Testbed) -> Result<Outcome> {
    redlock(testbed, true, "A's renewal finds two nodes of five, gives up, and tells nobody")
}

fn redlock(testbed: &Testbed, renewed: bool, verdict: &str) -> Result<Outcome> {
    let Some((nodes, clock)) = nodes(testbed)? else { return Ok(skipped()) };
    let locks = nodes.redlock(if renewed { TTL } else { LONG }, renewed);
    two_majorities(testbed, &nodes, locks, || jumps(testbed, &nodes, &clock), verdict)
}

fn with_tenure(testbed: &Testbed) -> Result<Outcome> {
    let Some((nodes, clock)) = nodes(testbed)? else { return Ok(skipped()) };
    let [of_a, of_b] = nodes.quorum(LEASE);
    let (mut a, mut b) = (testbed.actor("A")?, testbed.actor("B")?);
    a.prepare(&of_a)?;
    let first = a.take(&of_a, PATIENCE)?;
    let seen_by_a = a.look()?;
    testbed.work(SALE);
    jumps(testbed, &nodes, &clock)?;
    b.prepare(&of_b)?;
    let second = b.take(&of_b, PATIENCE)?;
    let seen = [seen_by_a, b.look()?];
    let Writes { grows, a_sold, b_sold, b_was_in, sales } = both_write(testbed, &mut a, &mut b)?;
    Ok(Outcome::new("two majorities for a while here too; B's token is larger, A's write is refused, and A is told")
        .claim("both are granted the lock, and see the last unit", first && second && seen == [1, 1])
        .claim(
            "the tokens grow, and no single clock moves them",
            grows && b.token() < a.token().map(|token| token + micros(JUMP) / 2),
        )
        .claim("A's write is refused, and B sells", !a_sold && b_sold && b_was_in)
        .claim("the unit is sold once", (sales.sold, sales.refused) == (1, 1)))
}

/// Five nodes, and the clock of the third. `None`: there is nothing to make such a clock of.
fn nodes(testbed: &Testbed) -> Result<Option<(Nodes, Clock)>> {
    if clock::missing().is_some() {
        return Ok(None);
    }
    let (others, third) = (testbed.clock("clock")?, testbed.clock("clock of node 3")?);
    // The nodes take themselves for a day old, so that their votes count at once.
    for clock in [&others, &third] {
        clock.behind(DAY)?;
    }
    let nodes = Nodes::start(testbed, |n| Setup::default().clock(if n == C { &third } else { &others }))?;
    for clock in [&others, &third] {
        clock.ahead(Duration::ZERO)?;
    }
    Ok(Some((nodes, third)))
}

fn skipped() -> Outcome {
    Outcome::skipped(clock::missing().unwrap_or_default())
}

fn jumps(testbed: &Testbed, nodes: &Nodes, clock: &Clock) -> Result<()> {
    clock.ahead(JUMP)?;
    testbed.mark(nodes.lanes[C], Moment::Did, "its clock jumps an hour ahead, and the lock has run out");
    testbed.until_gone(&nodes.servers[C], LOCK)
}

fn micros(d: Duration) -> u64 {
    u64::try_from(d.as_micros()).unwrap_or(u64::MAX)
}
