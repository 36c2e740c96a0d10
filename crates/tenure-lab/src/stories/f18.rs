//! A lock that is evicted because memory is short, or lost in a restart without data.

use std::time::Duration;

use super::late_release::set;
use crate::actor::Actor;
use crate::error::{LabError, Result};
use crate::locks::{LOCK, setnx, tenure};
use crate::redis_server::Setup;
use crate::server::Server;
use crate::story::{Kind, Outcome, Story, Way};
use crate::testbed::{Lane, SALE, Testbed};
use crate::timeline::Moment;

const LEASE: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) static STORY: Story = Story {
    id: "F18",
    title: "the server evicts the lock, or forgets it in a restart",
    lesson: "A lock is a key like any other: give locks a server with noeviction, and check the token where it matters.",
    stock: 1,
    ways: &[
        Way { kind: Kind::Naive, how: "SET NX PX, beside a cache", play: naive },
        Way { kind: Kind::Usual, how: "SET NX PX, renewed, beside a cache", play: in_redis_as_usual },
        Way { kind: Kind::Usual, how: "SET NX PX, renewed; the server restarts", play: restarted_as_usual },
        Way { kind: Kind::Tenure, how: "Mutex, beside a cache", play: with_tenure },
        Way { kind: Kind::Tenure, how: "Mutex; the server restarts", play: with_tenure_restarted },
    ],
};

type Disaster = fn(&Testbed, &Server, Lane) -> Result<()>;

fn naive(testbed: &Testbed) -> Result<Outcome> {
    sold_twice(testbed, evicts, |_| None, "the cache pushes A's lock out; nobody tells A, and both sell the last unit")
}

fn in_redis_as_usual(testbed: &Testbed) -> Result<Outcome> {
    sold_twice(
        testbed,
        evicts,
        |server| Some(setnx(server, LEASE)),
        "A's renewal finds the lock of B, gives up, and tells nobody",
    )
}

fn restarted_as_usual(testbed: &Testbed) -> Result<Outcome> {
    let verdict = "the server comes back with nothing; A's renewal finds the lock of B, and tells nobody";
    sold_twice(testbed, restarts, |server| Some(setnx(server, LEASE)), verdict)
}

/// With no lock, the commands are sent by hand.
fn sold_twice(
    testbed: &Testbed,
    disaster: Disaster,
    lock: impl FnOnce(&Server) -> Option<crate::protocol::LockSpec>,
    verdict: &str,
) -> Result<Outcome> {
    let (server, lane) = server(testbed)?;
    let lock = lock(&server);
    let take = |actor: &mut Actor| match &lock {
        Some(lock) => actor.take(lock, PATIENCE),
        None => set(actor, &server, "10000"),
    };
    let (mut a, mut b) = (testbed.actor("A")?, testbed.actor("B")?);
    let first = take(&mut a)?;
    let seen_by_a = a.look()?;
    disaster(testbed, &server, lane)?;
    let second = take(&mut b)?;
    let seen = [seen_by_a, b.look()?];
    testbed.work(SALE);
    b.sell()?;
    testbed.work(SALE);
    if lock.is_some() {
        testbed.until_renewal_fails(&mut a)?;
    }
    let still_believes = a.is_held()? && !a.was_told();
    a.sell()?;
    let sales = testbed.sales()?;
    Ok(Outcome::new(verdict)
        .claim("both are granted the lock, and see the last unit", first && second && seen == [1, 1])
        .claim("A knows nothing of it", still_believes)
        .claim("the last unit is sold twice", (sales.oversold(), sales.stale) == (1, 1)))
}

fn with_tenure(testbed: &Testbed) -> Result<Outcome> {
    refused(testbed, evicts, "A is told at its next renewal, and refused if it writes anyway")
}

fn with_tenure_restarted(testbed: &Testbed) -> Result<Outcome> {
    refused(testbed, restarts, "the tokens are forgotten too, and B's is larger all the same; A is told, and refused")
}

fn refused(testbed: &Testbed, disaster: Disaster, verdict: &str) -> Result<Outcome> {
    let (server, lane) = server(testbed)?;
    let lock = tenure(server.url(""), LEASE);
    let [mut a, mut b] = testbed.actors(["A", "B"], &lock)?;
    let first = a.take(&lock, PATIENCE)?;
    let seen_by_a = a.look()?;
    disaster(testbed, &server, lane)?;
    let second = b.take(&lock, PATIENCE)?;
    let seen = [seen_by_a, b.look()?];
    testbed.until("A is told", || Ok(a.was_told()))?;
    let knows = !a.is_held()?;
    let a_sold = a.sell()?;
    testbed.work(SALE);
    let b_sold = b.sell()?;
    let b_was_in = b.give_back()?;
    let sales = testbed.sales()?;
    Ok(Outcome::new(verdict)
        .claim("both are granted the lock, and see the last unit", first && second && seen == [1, 1])
        .claim("A is told that its lock is gone", knows)
        .claim("B's token is larger", b.token() > a.token())
        .claim("A's write is refused, and B sells", !a_sold && b_sold && b_was_in)
        .claim("the unit is sold once", (sales.sold, sales.refused) == (1, 1)))
}

fn server(testbed: &Testbed) -> Result<(std::rc::Rc<Server>, Lane)> {
    let server = testbed.server_with(Setup::default())?;
    let lane = testbed.watch(&server, "Redis")?;
    Ok((server, lane))
}

/// Others fill the server until it evicts what ends soonest: that is the lock.
fn evicts(testbed: &Testbed, server: &Server, lane: Lane) -> Result<()> {
    let used: u64 = info(server, "memory", "used_memory")?;
    server.ask::<()>(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"])?;
    server.ask::<()>(&["CONFIG", "SET", "maxmemory", &(used + 4_000_000).to_string()])?;
    let value = "x".repeat(100_000);
    let mut n = 0;
    testbed.until("the lock is evicted", || {
        n += 1;
        server.ask::<()>(&["SET", &format!("cache:{n}"), &value, "EX", "3600"])?;
        Ok(server.ask::<u64>(&["EXISTS", LOCK])? == 0)
    })?;
    // The rush is over: what is locked from now on stays.
    server.ask::<()>(&["CONFIG", "SET", "maxmemory", "0"])?;
    let evicted: u64 = info(server, "stats", "evicted_keys")?;
    if evicted == 0 {
        return Err(LabError::new("the lock has run out instead of being evicted"));
    }
    testbed.mark(lane, Moment::Did, "is full, and evicts what ends soonest: the lock");
    Ok(())
}

fn info(server: &Server, section: &str, name: &str) -> Result<u64> {
    let said: String = server.ask(&["INFO", section])?;
    let number = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse().ok());
    number.ok_or_else(|| LabError::new(format!("the server does not say its {name}")))
}

/// Without persistence, as a cache is often run.
fn restarts(testbed: &Testbed, server: &Server, lane: Lane) -> Result<()> {
    testbed.work(SALE);
    server.kill()?;
    testbed.mark(lane, Moment::Killed, "dies, and starts again with nothing");
    server.restart()?;
    testbed.watch_again(server, lane)
}
