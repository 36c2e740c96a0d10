//! Work that takes longer than the lock lasts.

use std::time::Duration;

use crate::error::Result;
use crate::locks::{LOCK, setnx, tenure};
use crate::protocol::LockSpec;
use crate::server::Server;
use crate::story::{Kind, Outcome, Story, Way};
use crate::testbed::{SALE, Testbed};

const LEASE: Duration = Duration::from_millis(800);
const TTL: &str = "800";
const PATIENCE: Duration = Duration::from_secs(8);

pub(crate) static STORY: Story = Story {
    id: "F4",
    title: "the work outlives the lock",
    lesson: "No lease is long enough for all work: it must be renewed for as long as the holder lives.",
    stock: 1,
    ways: &[
        Way { kind: Kind::Naive, how: "SET NX PX 800, and hope", play: naive },
        Way { kind: Kind::Usual, how: "SET NX PX 800, renewed at a third", play: in_redis_as_usual },
        Way { kind: Kind::Tenure, how: "Mutex, lease 800 ms, renewed at a third", play: with_tenure },
    ],
};

fn naive(testbed: &Testbed) -> Result<Outcome> {
    let server = testbed.server()?;
    let (mut a, mut b) = (testbed.actor("A")?, testbed.actor("B")?);
    let a_is_in = a.redis(&server, &["SET", LOCK, "A", "NX", "PX", TTL])?.is_yes();
    a.granted()?;
    let seen_by_a = a.look()?;
    testbed.until_gone(&server, LOCK)?;
    let b_is_in = b.redis(&server, &["SET", LOCK, "B", "NX", "PX", "5000"])?.is_yes();
    b.granted()?;
    let seen_by_b = b.look()?;
    testbed.work(SALE);
    b.sell()?;
    testbed.work(SALE);
    a.sell()?;
    let sales = testbed.sales()?;
    Ok(Outcome::new("the lock ran out under A's work; B got in, and both sold the last unit")
        .claim(
            "both had the lock, one after the other, and saw the same unit",
            a_is_in && b_is_in && (seen_by_a, seen_by_b) == (1, 1),
        )
        .claim("the last unit is sold twice", sales.oversold() == 1)
        .claim("A's write is stale", sales.stale == 1))
}

fn in_redis_as_usual(testbed: &Testbed) -> Result<Outcome> {
    let server = testbed.server()?;
    let verdict = "renewed in the background: enough, for as long as the process itself runs";
    works_for_two_leases(testbed, &server, &setnx(&server, LEASE), verdict)
}

fn with_tenure(testbed: &Testbed) -> Result<Outcome> {
    let server = testbed.server()?;
    let verdict = "renewed in the background, for as long as the process itself runs";
    works_for_two_leases(testbed, &server, &tenure(server.url(""), LEASE), verdict)
}

fn works_for_two_leases(testbed: &Testbed, server: &Server, lock: &LockSpec, verdict: &str) -> Result<Outcome> {
    let [mut a, mut b] = testbed.actors(["A", "B"], lock)?;
    let locked = a.try_take(lock)?;
    let first = a.look()?;
    testbed.let_wait(&mut b, lock, PATIENCE)?;
    testbed.work(LEASE * 2);
    let outlived = server.ask::<bool>(&["EXISTS", LOCK])? && a.is_held()?;
    a.sell()?;
    a.give_back()?;
    let granted = b.taken()?;
    let second = b.look()?;
    testbed.work(SALE);
    b.give_back()?;
    let sales = testbed.sales()?;
    Ok(Outcome::new(verdict)
        .claim("the lock outlives two leases of work", locked && outlived)
        .claim("B gets in when A is done, and sees that nothing is left", granted && (first, second) == (1, 0))
        .claim("the unit is sold once", (sales.sold, sales.stale) == (1, 0)))
}
