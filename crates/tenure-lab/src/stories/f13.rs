//! A process stands still after its last look, for longer than its lock lasts, and then writes.

use std::time::Duration;

use super::late_release::{TTL, set};
use crate::actor::Actor;
use crate::error::Result;
use crate::locks::{LOCK, setnx, tenure};
use crate::protocol::{LockSpec, Value};
use crate::story::{Kind, Outcome, Story, Way};
use crate::testbed::{SALE, Testbed};

const LEASE: Duration = Duration::from_millis(1500);
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) static STORY: Story = Story {
    id: "F13",
    title: "the holder stands still past its lease, and wakes up to write",
    lesson: "No look at the clock or at the lock helps if the pause comes after it: the write itself must be checked.",
    stock: 1,
    ways: &[
        Way { kind: Kind::Naive, how: "SET NX PX 600, then write", play: naive },
        Way { kind: Kind::Usual, how: "renewed, and one more look at the lock before the write", play: in_redis_as_usual },
        Way { kind: Kind::Tenure, how: "the work runs under the guard (Guard::run)", play: under_the_guard },
        Way { kind: Kind::Tenure, how: "writes without a look, with the token", play: without_a_look },
    ],
};

fn naive(testbed: &Testbed) -> Result<Outcome> {
    let server = testbed.server()?;
    let (mut a, mut b) = (testbed.actor("A")?, testbed.actor("B")?);
    let first = set(&mut a, &server, TTL)?;
    let seen = a.look()?;
    testbed.work(SALE);
    a.stop()?;
    testbed.until_gone(&server, LOCK)?;
    let second = set(&mut b, &server, "10000")?;
    sells(testbed, &mut b)?;
    a.go_on()?;
    a.sell()?;
    sold_twice(testbed, first && second && seen == 1, "A sleeps through the end of its lock, and sells what B has sold")
}

fn in_redis_as_usual(testbed: &Testbed) -> Result<Outcome> {
    let server = testbed.server()?;
    let lock = setnx(&server, LEASE);
    let [mut a, mut b] = testbed.actors(["A", "B"], &lock)?;
    let first = a.try_take(&lock)?;
    let seen = a.look()?;
    testbed.work(SALE);
    let owner = a.redis(&server, &["GET", LOCK])?;
    let is_its_own = matches!(owner, Value::Text(owner) if owner.starts_with("A:"));
    a.stop()?;
    let second = b.take(&lock, PATIENCE)?;
    sells(testbed, &mut b)?;
    a.go_on()?;
    a.sell()?;
    let granted = first && second && seen == 1 && is_its_own;
    sold_twice(testbed, granted, "A looks, and the lock is its own; then it stands still, and nobody renews; then it sells")
}

fn sold_twice(testbed: &Testbed, granted: bool, verdict: &str) -> Result<Outcome> {
    let sales = testbed.sales()?;
    Ok(Outcome::new(verdict)
        .claim("A stands still with the lock in hand, and B is granted it when it has run out", granted)
        .claim("the last unit is sold twice, the second time by A", (sales.oversold(), sales.stale) == (1, 1)))
}

fn under_the_guard(testbed: &Testbed) -> Result<Outcome> {
    let lock = tenure(testbed.server()?.url(""), LEASE);
    let [mut a, mut b] = testbed.actors(["A", "B"], &lock)?;
    let first = a.try_take(&lock)?;
    let seen = a.begin_sale()?;
    let second = stands_still_meanwhile(testbed, &lock, &mut a, &mut b)?;
    let written = a.end_sale()?;
    testbed.until("A is told", || Ok(a.was_told()))?;
    let sales = testbed.sales()?;
    Ok(Outcome::new("the pause came before a step of the work: the guard lets A take no other, and A is told why")
        .claim("B is granted the lock while A stands still", first && seen == 1 && second)
        .claim("the guard lets A's work take no further step", written.is_none() && sales.refused == 0)
        .claim("the unit is sold once", sales.sold == 1))
}

fn without_a_look(testbed: &Testbed) -> Result<Outcome> {
    let lock = tenure(testbed.server()?.url(""), LEASE);
    let [mut a, mut b] = testbed.actors(["A", "B"], &lock)?;
    let first = a.try_take(&lock)?;
    let seen = a.look()?;
    let second = stands_still_meanwhile(testbed, &lock, &mut a, &mut b)?;
    let a_sold = a.sell()?;
    testbed.until("A is told", || Ok(a.was_told()))?;
    let sales = testbed.sales()?;
    Ok(Outcome::new("A writes without asking its guard, and the shop refuses: B's larger token has been there")
        .claim("B is granted the lock while A stands still", first && seen == 1 && second && b.token() > a.token())
        .claim("A's write is refused", !a_sold && sales.refused == 1)
        .claim("the unit is sold once", sales.sold == 1))
}

/// A stands still; B gets the lock when it has run out, and sells.
fn stands_still_meanwhile(testbed: &Testbed, lock: &LockSpec, a: &mut Actor, b: &mut Actor) -> Result<bool> {
    testbed.work(SALE);
    a.stop()?;
    let granted = b.take(lock, PATIENCE)?;
    sells(testbed, b)?;
    a.go_on()?;
    Ok(granted)
}

fn sells(testbed: &Testbed, actor: &mut Actor) -> Result<()> {
    actor.look()?;
    testbed.work(SALE);
    actor.sell()?;
    testbed.work(SALE);
    Ok(())
}
