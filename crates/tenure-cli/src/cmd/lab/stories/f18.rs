//! The lock goes because the server needs the room, or because it starts again with nothing.

use std::time::Duration;

use super::late::set;
use crate::cmd::lab::actor::Actor;
use crate::cmd::lab::server::{Server, Setup};
use crate::cmd::lab::stage::{LOCK, Lane, SALE, Stage, tenure, usual};
use crate::cmd::lab::story::{Kind, Outcome, Story, Way};
use crate::cmd::lab::timeline::Moment;
use crate::cmd::lab::upset::{Played, Upset};

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

type Disaster = fn(&Stage, &Server, Lane) -> Played<()>;

fn naive(stage: &Stage) -> Played<Outcome> {
    sold_twice(stage, evicts, |_| None, "the cache pushes A's lock out; nobody tells A, and both sell the last unit")
}

fn in_redis_as_usual(stage: &Stage) -> Played<Outcome> {
    sold_twice(stage, evicts, |server| Some(usual(server, LEASE)), "A's renewal finds the lock of B, gives up, and tells nobody")
}

fn restarted_as_usual(stage: &Stage) -> Played<Outcome> {
    let verdict = "the server comes back with nothing; A's renewal finds the lock of B, and tells nobody";
    sold_twice(stage, restarts, |server| Some(usual(server, LEASE)), verdict)
}

/// With no lock, the commands are sent by hand.
fn sold_twice(
    stage: &Stage,
    disaster: Disaster,
    lock: impl FnOnce(&Server) -> Option<crate::cmd::lab::words::Lock>,
    verdict: &str,
) -> Played<Outcome> {
    let (server, lane) = server(stage)?;
    let lock = lock(&server);
    let take = |actor: &mut Actor| match &lock {
        Some(lock) => actor.take(lock, PATIENCE),
        None => set(actor, &server, "10000"),
    };
    let (mut a, mut b) = (stage.actor("A")?, stage.actor("B")?);
    let first = take(&mut a)?;
    let seen_by_a = a.look()?;
    disaster(stage, &server, lane)?;
    let second = take(&mut b)?;
    let seen = [seen_by_a, b.look()?];
    stage.work(SALE);
    b.sell()?;
    stage.work(SALE);
    if lock.is_some() {
        stage.until_renewal_fails(&mut a)?;
    }
    let still_believes = a.is_held()? && !a.was_told();
    a.sell()?;
    let sales = stage.sales()?;
    Ok(Outcome::new(verdict)
        .claim("both are granted the lock, and see the last unit", first && second && seen == [1, 1])
        .claim("A knows nothing of it", still_believes)
        .claim("the last unit is sold twice", (sales.oversold(), sales.stale) == (1, 1)))
}

fn with_tenure(stage: &Stage) -> Played<Outcome> {
    refused(stage, evicts, "A is told at its next renewal, and refused if it writes anyway")
}

fn with_tenure_restarted(stage: &Stage) -> Played<Outcome> {
    refused(stage, restarts, "the tokens are forgotten too, and B's is larger all the same; A is told, and refused")
}

fn refused(stage: &Stage, disaster: Disaster, verdict: &str) -> Played<Outcome> {
    let (server, lane) = server(stage)?;
    let lock = tenure(server.url(""), LEASE);
    let [mut a, mut b] = stage.actors(["A", "B"], &lock)?;
    let first = a.take(&lock, PATIENCE)?;
    let seen_by_a = a.look()?;
    disaster(stage, &server, lane)?;
    let second = b.take(&lock, PATIENCE)?;
    let seen = [seen_by_a, b.look()?];
    stage.until("A is told", || Ok(a.was_told()))?;
    let knows = !a.is_held()?;
    let a_sold = a.sell()?;
    stage.work(SALE);
    let b_sold = b.sell()?;
    let b_was_in = b.give_back()?;
    let sales = stage.sales()?;
    Ok(Outcome::new(verdict)
        .claim("both are granted the lock, and see the last unit", first && second && seen == [1, 1])
        .claim("A is told that its lock is gone", knows)
        .claim("B's token is larger", b.token() > a.token())
        .claim("A's write is refused, and B sells", !a_sold && b_sold && b_was_in)
        .claim("the unit is sold once", (sales.sold, sales.refused) == (1, 1)))
}

fn server(stage: &Stage) -> Played<(std::rc::Rc<Server>, Lane)> {
    let server = stage.server_with(Setup::default())?;
    let lane = stage.watch(&server, "Redis")?;
    Ok((server, lane))
}

/// Others fill the server until it evicts what ends soonest: that is the lock.
fn evicts(stage: &Stage, server: &Server, lane: Lane) -> Played<()> {
    let used: u64 = info(server, "memory", "used_memory")?;
    server.ask::<()>(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"])?;
    server.ask::<()>(&["CONFIG", "SET", "maxmemory", &(used + 4_000_000).to_string()])?;
    let value = "x".repeat(100_000);
    let mut n = 0;
    stage.until("the lock is evicted", || {
        n += 1;
        server.ask::<()>(&["SET", &format!("cache:{n}"), &value, "EX", "3600"])?;
        Ok(server.ask::<u64>(&["EXISTS", LOCK])? == 0)
    })?;
    // The rush is over: what is locked from now on stays.
    server.ask::<()>(&["CONFIG", "SET", "maxmemory", "0"])?;
    let evicted: u64 = info(server, "stats", "evicted_keys")?;
    if evicted == 0 {
        return Err(Upset::new("the lock has run out instead of being evicted"));
    }
    stage.mark(lane, Moment::Did, "is full, and evicts what ends soonest: the lock");
    Ok(())
}

fn info(server: &Server, section: &str, name: &str) -> Played<u64> {
    let said: String = server.ask(&["INFO", section])?;
    let number = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse().ok());
    number.ok_or_else(|| Upset::new(format!("the server does not say its {name}")))
}

/// Without persistence, as a cache is often run.
fn restarts(stage: &Stage, server: &Server, lane: Lane) -> Played<()> {
    stage.work(SALE);
    server.kill()?;
    stage.mark(lane, Moment::Killed, "dies, and starts again with nothing");
    server.restart()?;
    stage.watch_again(server, lane)
}
