//! The counter of tokens is lost with a server, and starts again from an older number.

use std::time::Duration;

use super::failover::{Both, Pair, both_are_granted};
use crate::actor::Actor;
use crate::error::{LabError, Result};
use crate::locks::{COUNTER, LOCK, setnx_counted, tenure};
use crate::protocol::{LockSpec, Value};
use crate::redis_server::Setup;
use crate::server::Server;
use crate::story::{Kind, Outcome, Story, Way};
use crate::testbed::{Lane, SALE, Testbed};
use crate::timeline::Moment;

const LEASE: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) static STORY: Story = Story {
    id: "F14",
    title: "the counter of tokens goes back",
    lesson: "A token is only as good as its memory: a counter that can be lost must not be all that makes it grow.",
    stock: 2,
    ways: &[
        Way { kind: Kind::Naive, how: "INCR as token, on one server without persistence", play: naive },
        Way { kind: Kind::Usual, how: "lock and INCR in one script, with a replica", play: in_redis_as_usual },
        Way { kind: Kind::Tenure, how: "the same failover", play: with_tenure },
        Way { kind: Kind::Tenure, how: "the same restart without data", play: with_tenure_restarted },
    ],
};

fn naive(testbed: &Testbed) -> Result<Outcome> {
    let server = testbed.server_with(Setup::default())?;
    let lane = testbed.watch(&server, "Redis")?;
    let (mut a, mut b) = (testbed.actor("A")?, testbed.actor("B")?);
    // Some were here before.
    for _ in 0..2 {
        lock_and_count(&mut b, &server)?;
        give_back(&mut b, &server)?;
    }
    lock_and_count(&mut a, &server)?;
    let a_sold = sells(testbed, &mut a)?;
    give_back(&mut a, &server)?;
    restarts_empty(testbed, &server, lane)?;
    lock_and_count(&mut b, &server)?;
    let b_sold = sells(testbed, &mut b)?;
    let (first, second) = (a.token().unwrap_or_default(), b.token().unwrap_or_default());
    let verdict = format!("A sold with token {first}; B holds the lock with token {second}, and the shop refuses its writes");
    Ok(Outcome::new(verdict)
        .claim("A sells with a token that was right", a_sold && first == 3)
        .claim("B holds the lock with a token that is older", second == 1)
        .claim("B, who holds the lock, can sell nothing", !b_sold && testbed.sales()?.sold == 1))
}

/// The server dies and starts again. It has written nothing.
fn restarts_empty(testbed: &Testbed, server: &Server, lane: Lane) -> Result<()> {
    server.kill()?;
    testbed.mark(lane, Moment::Killed, "dies, and starts again with nothing");
    server.restart()?;
    testbed.watch_again(server, lane)
}

/// The lock first, then a number, in two commands.
fn lock_and_count(actor: &mut Actor, server: &Server) -> Result<()> {
    let name = actor.name.clone();
    let locked = actor.redis(server, &["SET", LOCK, &name, "NX", "PX", "10000"])?.is_yes();
    let Value::Int(token) = actor.redis(server, &["INCR", COUNTER])? else { return Err(LabError::new("no number")) };
    if !locked {
        return Err(LabError::new(format!("{name} is not granted the lock")));
    }
    actor.granted_with(u64::try_from(token).ok())
}

fn give_back(actor: &mut Actor, server: &Server) -> Result<()> {
    actor.redis(server, &["DEL", LOCK])?;
    actor.give_back().map(drop)
}

fn in_redis_as_usual(testbed: &Testbed) -> Result<Outcome> {
    let pair = Pair::start(testbed)?;
    let lock = setnx_counted(&pair.address, LEASE, COUNTER);
    let counted = |server: &Server| server.ask::<Option<u64>>(&["GET", COUNTER]);
    let Both { mut a, mut b, granted, seen } = loses_the_last_token(testbed, &pair, &lock, || {
        let count = counted(&pair.master)?;
        testbed.until("the replica has the counter", || Ok(counted(&pair.replica)? == count))
    })?;
    let same = a.token() == b.token();
    b.sell()?;
    testbed.work(SALE);
    a.sell()?;
    let token = a.token().unwrap_or_default();
    let sales = testbed.sales()?;
    Ok(Outcome::new(format!("both have token {token}: the fence takes A for B, and the last unit is sold twice"))
        .claim("both are granted the lock, and see the last unit", granted && seen == [1, 1])
        .claim("both have the same token", same && token == 2)
        .claim("the fence lets both through", (sales.oversold(), sales.stale, sales.refused) == (1, 1, 0)))
}

fn with_tenure(testbed: &Testbed) -> Result<Outcome> {
    let pair = Pair::start(testbed)?;
    let lock = tenure(pair.address.url(""), LEASE);
    let Both { mut a, mut b, granted, seen } = loses_the_last_token(testbed, &pair, &lock, || Ok(()))?;
    let grows = b.token() > a.token();
    let a_sold = a.sell()?;
    testbed.work(SALE);
    let b_sold = b.sell()?;
    let sales = testbed.sales()?;
    Ok(Outcome::new(
        "the new master has lost the counter, not the time (its clock is right): B's token is larger, and A is refused",
    )
    .claim("both are granted the lock, and see the last unit", granted && seen == [1, 1])
    .claim("B's token is larger", grows)
    .claim("A is refused, and B sells", !a_sold && b_sold && (sales.sold, sales.refused) == (2, 1)))
}

/// A sells one as it should; then both are granted the lock of the last one.
fn loses_the_last_token(testbed: &Testbed, pair: &Pair, lock: &LockSpec, settled: impl FnOnce() -> Result<()>) -> Result<Both> {
    let [mut a, b] = testbed.actors(["A", "B"], lock)?;
    testbed.until("A is granted the lock", || a.try_take(lock))?;
    sells(testbed, &mut a)?;
    a.give_back()?;
    settled()?;
    both_are_granted(testbed, pair, [a, b], |actor| actor.take(lock, PATIENCE))
}

fn with_tenure_restarted(testbed: &Testbed) -> Result<Outcome> {
    let server = testbed.server_with(Setup::default())?;
    let lane = testbed.watch(&server, "Redis")?;
    let lock = tenure(server.url(""), LEASE);
    let [mut a, mut b] = testbed.actors(["A", "B"], &lock)?;
    testbed.until("A is granted the lock", || a.try_take(&lock))?;
    let a_sold = sells(testbed, &mut a)?;
    a.give_back()?;
    restarts_empty(testbed, &server, lane)?;
    let granted = b.take(&lock, PATIENCE)?;
    let b_sold = granted && sells(testbed, &mut b)?;
    b.give_back()?;
    Ok(Outcome::new("the server has forgotten all tokens, and by its clock the next one is larger all the same: B sells")
        .claim("B's token is larger", b.token() > a.token())
        .claim("A has sold, and B sells", a_sold && b_sold && testbed.sales()?.sold == 2))
}

fn sells(testbed: &Testbed, actor: &mut Actor) -> Result<bool> {
    actor.look()?;
    testbed.work(SALE);
    actor.sell()
}
