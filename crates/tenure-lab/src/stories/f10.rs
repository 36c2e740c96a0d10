//! A master dies with a lock that its replica did not get.

use std::time::Duration;

use super::both_write::{Writes, both_write};
use super::failover::{Both, Pair, both_are_granted};
use super::late_release::set;
use crate::error::{Cause, LabError, Result};
use crate::locks::{setnx, tenure};
use crate::story::{Kind, Outcome, Story, Way};
use crate::testbed::{SALE, Testbed};

const LEASE: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) static STORY: Story = Story {
    id: "F10",
    title: "the master dies before the lock is replicated",
    lesson: "A replica that takes over may not know of the lock: only what checks tokens can tell the two holders apart.",
    stock: 1,
    ways: &[
        Way { kind: Kind::Naive, how: "SET NX PX at the master", play: naive },
        Way { kind: Kind::Usual, how: "SET NX PX, renewed", play: in_redis_as_usual },
        Way { kind: Kind::Tenure, how: "Mutex, with the token in each write", play: with_tenure },
        Way { kind: Kind::Tenure, how: "Mutex with sync=1: a replica has to confirm", play: confirmed },
    ],
};

fn naive(testbed: &Testbed) -> Result<Outcome> {
    let pair = Pair::start(testbed)?;
    let actors = [testbed.actor("A")?, testbed.actor("B")?];
    let both = both_are_granted(testbed, &pair, actors, |actor| set(actor, &pair.address, "10000"))?;
    sold_twice(testbed, both, false, "the new master knows nothing of A's lock: both hold it, and both sell the last unit")
}

fn in_redis_as_usual(testbed: &Testbed) -> Result<Outcome> {
    let pair = Pair::start(testbed)?;
    let lock = setnx(&pair.address, LEASE);
    let actors = testbed.actors(["A", "B"], &lock)?;
    let both = both_are_granted(testbed, &pair, actors, |actor| actor.try_take(&lock))?;
    sold_twice(testbed, both, true, "renewal does not help: it finds the lock of B, and nobody tells A")
}

fn sold_twice(testbed: &Testbed, both: Both, renewed: bool, verdict: &str) -> Result<Outcome> {
    let Both { mut a, mut b, granted, seen } = both;
    b.sell()?;
    testbed.work(SALE);
    if renewed {
        testbed.until_renewal_fails(&mut a)?;
    }
    let still_believes = a.is_held()?;
    a.sell()?;
    let sales = testbed.sales()?;
    Ok(Outcome::new(verdict)
        .claim("both are granted the lock, and see the last unit", granted && seen == [1, 1])
        .claim("A knows nothing of it", still_believes && !a.was_told())
        .claim("the last unit is sold twice", (sales.oversold(), sales.stale) == (1, 1)))
}

fn with_tenure(testbed: &Testbed) -> Result<Outcome> {
    let pair = Pair::start(testbed)?;
    let lock = tenure(pair.address.url(""), LEASE);
    let actors = testbed.actors(["A", "B"], &lock)?;
    let Both { mut a, mut b, granted, seen } = both_are_granted(testbed, &pair, actors, |actor| actor.take(&lock, PATIENCE))?;
    let Writes { grows, a_sold, b_sold, b_was_in, sales } = both_write(testbed, &mut a, &mut b)?;
    Ok(Outcome::new("both hold it for a moment; B's token is larger, so A's write is refused, and A is told at its next renewal")
        .claim("both are granted the lock, and see the last unit", granted && seen == [1, 1])
        .claim("the token of the second is larger, though the counter was lost", grows)
        .claim("A's write is refused, before B has written anything", !a_sold && sales.refused == 1)
        .claim("B keeps its lock and sells the unit", b_sold && b_was_in && sales.sold == 1))
}

fn confirmed(testbed: &Testbed) -> Result<Outcome> {
    let pair = Pair::start(testbed)?;
    let lock = tenure(pair.address.url("sync=1"), LEASE);
    let [mut a, mut b] = testbed.actors(["A", "B"], &lock)?;
    pair.part(testbed)?;
    let refused = a.try_take_or_why(&lock)?;
    pair.fail_over(testbed)?;
    let alone = b.try_take_or_why(&lock)?;
    pair.come_back(testbed)?;
    let granted = b.take(&lock, PATIENCE)?;
    let seen = b.look()?;
    testbed.work(SALE);
    let sold = b.sell()?;
    b.give_back()?;
    let unconfirmed = |asked: &Result<bool, LabError>| asked.as_ref().is_err_and(|why| why.cause == Cause::TooFewReplicas);
    Ok(Outcome::new("A is not granted what no replica has; the price: no replica, no lock, until one is back")
        .claim("A is refused, and told that there are too few replicas", unconfirmed(&refused))
        .claim("so is B, as long as the new master is alone", unconfirmed(&alone))
        .claim("B is granted the lock when a replica is back, and sells", granted && seen == 1 && sold))
}
