//! Two services, one stock, and a lock that only one of them can see.

use std::time::Duration;

use crate::actor::Actor;
use crate::error::Result;
use crate::locks::{setnx, tenure};
use crate::protocol::LockSpec;
use crate::story::{Kind, Outcome, Story, Way};
use crate::testbed::Testbed;

const LEASE: Duration = Duration::from_secs(2);
/// How long a sale takes, between the look at the stock and the write.
const SALE: Duration = Duration::from_millis(15);
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) static STORY: Story = Story {
    id: "F1",
    title: "two services sell the same stock under a local lock",
    lesson: "A lock inside of a process keeps out threads of that process, and nobody else.",
    stock: 5,
    ways: &[
        Way { kind: Kind::Naive, how: "a mutex in each process", play: naive },
        Way { kind: Kind::Usual, how: "SET NX PX, released by a script", play: in_redis_as_usual },
        Way { kind: Kind::Tenure, how: "Mutex, with the token in each write", play: with_tenure },
    ],
};

fn naive(testbed: &Testbed) -> Result<Outcome> {
    sell_out(testbed, &LockSpec::Local)?;
    let sales = testbed.sales()?;
    let verdict = format!("both hold their own lock and see the same units: {} sold of {}", sales.sold, sales.stock);
    Ok(Outcome::new(verdict).claim("each unit is sold twice", sales.sold == 2 * sales.stock))
}

fn in_redis_as_usual(testbed: &Testbed) -> Result<Outcome> {
    let server = testbed.server()?;
    sell_out(testbed, &setnx(&server, LEASE))?;
    told(testbed, "one lock for both: that is enough here; who waits asks again and again")
}

fn with_tenure(testbed: &Testbed) -> Result<Outcome> {
    let server = testbed.server()?;
    sell_out(testbed, &tenure(server.url(""), LEASE))?;
    told(testbed, "one lock for both; who waits is woken")
}

fn told(testbed: &Testbed, verdict: &str) -> Result<Outcome> {
    let sales = testbed.sales()?;
    Ok(Outcome::new(verdict).claim("each unit is sold once", sales.sold == sales.stock && sales.stale == 0))
}

/// Two services sell until each sees that nothing is left.
fn sell_out(testbed: &Testbed, lock: &LockSpec) -> Result<()> {
    let [mut a, mut b] = testbed.actors(["A", "B"], lock)?;
    let mut left = true;
    while left {
        testbed.until("A is granted the lock", || a.try_take(lock))?;
        if b.try_take(lock)? {
            left = sell_both(testbed, &mut a, &mut b)?;
            continue;
        }
        testbed.let_wait(&mut b, lock, PATIENCE)?;
        sell_one(testbed, &mut a)?;
        if !b.taken()? {
            return Ok(());
        }
        left = sell_one(testbed, &mut b)?;
    }
    Ok(())
}

/// Both are in at the same time. False if there was nothing left.
fn sell_both(testbed: &Testbed, a: &mut Actor, b: &mut Actor) -> Result<bool> {
    let left = a.look()? > 0 && b.look()? > 0;
    testbed.work(SALE);
    for actor in [a, b] {
        if left {
            actor.sell()?;
        }
        actor.give_back()?;
    }
    Ok(left)
}

fn sell_one(testbed: &Testbed, actor: &mut Actor) -> Result<bool> {
    let left = actor.look()? > 0;
    if left {
        testbed.work(SALE);
        actor.sell()?;
    }
    actor.give_back()?;
    Ok(left)
}
