//! Waiting by asking: what it costs the one who waits, and the server.

use std::time::{Duration, Instant};

use crate::cmd::lab::actor::Actor;
use crate::cmd::lab::stage::{LOCK, SALE, Stage, tenure};
use crate::cmd::lab::story::{Kind, Outcome, Story, Way};
use crate::cmd::lab::upset::Played;
use crate::cmd::lab::words::{Lock, UsualLock, Word};

/// How long B has waited when the counting begins: long enough for all that a wait has to arrange.
const BEFORE: Duration = Duration::from_secs(1);
const COUNTED: Duration = Duration::from_millis(500);
/// Long enough that nobody renews during the story: only the waiting is counted.
const LEASE: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(10);
/// What a thread pool's thread may well have.
const STACK: usize = 256 * 1024;

pub(crate) static STORY: Story = Story {
    id: "F8",
    title: "retries overflow the stack, or hammer Redis",
    lesson: "Who waits should sleep until there is something to ask.",
    stock: 2,
    ways: &[
        Way { kind: Kind::Naive, how: "on failure call yourself again (256 KiB of stack)", play: by_recursion },
        Way { kind: Kind::Naive, how: "ask in a busy loop", play: in_a_busy_loop },
        Way { kind: Kind::Usual, how: "ask every 100 ms", play: every_tenth_of_a_second },
        Way { kind: Kind::Tenure, how: "Mutex: woken by the server", play: with_tenure },
    ],
};

fn by_recursion(stage: &Stage) -> Played<Outcome> {
    let server = stage.server()?;
    let (mut a, mut b) = (stage.actor("A")?, stage.actor("B")?);
    let set = |who: &str| ["SET", LOCK, who, "NX", "PX", "30000"].map(str::to_owned);
    let locked = a.redis(&server, &set("A").each_ref().map(|word| &**word))?.is_yes();
    a.granted()?;
    let before = stage.requests()?;
    b.begin_to_wait(None);
    b.tell(&Word::Recurse { port: server.port(), command: set("B").into(), stack: STACK })?;
    let died = b.dies(|| Ok(format!("dies: the stack is full after {} calls", stage.requests()? - before)))?;
    let calls = stage.requests()? - before;
    a.look()?;
    stage.work(SALE);
    a.sell()?;
    a.redis(&server, &["DEL", LOCK])?;
    a.give_back()?;
    let signals = [rustix::process::Signal::ABORT, rustix::process::Signal::SEGV].map(|signal| Some(signal.as_raw()));
    Ok(Outcome::new(format!("{calls} calls deep the stack was full: the process died, and all that it did with it"))
        .claim("B dies of it while A holds the lock", locked && signals.contains(&died))
        .claim("only A sells", stage.sales()?.sold == 1))
}

fn in_a_busy_loop(stage: &Stage) -> Played<Outcome> {
    let server = stage.server()?;
    let lock = asking(server.port(), Duration::ZERO);
    let cost = cost_of_a_wait(stage, &lock, || Ok(true))?;
    told(stage, format!("{cost} requests in half a second of waiting"))
        .map(|told| told.claim("it hammers the server: more than those who pause would, whatever else runs", cost > 10))
}

fn every_tenth_of_a_second(stage: &Stage) -> Played<Outcome> {
    let server = stage.server()?;
    let lock = asking(server.port(), Duration::from_millis(100));
    let cost = cost_of_a_wait(stage, &lock, || Ok(true))?;
    let verdict = format!("{cost} requests in half a second of waiting, and up to 100 ms too late");
    told(stage, verdict).map(|told| told.claim("it asks on and on", (1..=10).contains(&cost)))
}

fn with_tenure(stage: &Stage) -> Played<Outcome> {
    let server = stage.server()?;
    // A wait that lasts can be seen by others: through a subscription, which is the last that it costs.
    let settled = || Ok(server.clients()?.iter().any(|(_, subscribed)| *subscribed));
    let cost = cost_of_a_wait(stage, &tenure(server.url(""), LEASE), settled)?;
    let verdict = format!("{cost} requests in half a second of waiting");
    // Now and then it asks all the same, lest a message was lost.
    told(stage, verdict).map(|told| told.claim("waiting costs no request", cost <= 1))
}

fn asking(port: u16, poll: Duration) -> Lock {
    Lock::Usual(UsualLock { port, key: LOCK.to_owned(), ttl: LEASE, renewed: false, poll, counter: None })
}

/// How many requests it takes to wait for [`COUNTED`], when the wait has begun.
fn cost_of_a_wait(stage: &Stage, lock: &Lock, settled: impl Fn() -> Played<bool>) -> Played<u64> {
    let [mut a, mut b] = stage.actors(["A", "B"], lock)?;
    stage.until("A is granted the lock", || a.try_take(lock))?;
    let since = Instant::now();
    stage.let_wait(&mut b, lock, PATIENCE)?;
    stage.until("B has arranged its wait", settled)?;
    stage.work(BEFORE.saturating_sub(since.elapsed()));
    let before = stage.requests()?;
    stage.work(COUNTED);
    let cost = stage.requests()? - before;
    sell(stage, &mut a)?;
    if b.taken()? {
        sell(stage, &mut b)?;
    }
    Ok(cost)
}

fn sell(stage: &Stage, actor: &mut Actor) -> Played<()> {
    if actor.look()? > 0 {
        stage.work(SALE);
        actor.sell()?;
    }
    actor.give_back().map(drop)
}

fn told(stage: &Stage, verdict: String) -> Played<Outcome> {
    let sales = stage.sales()?;
    Ok(Outcome::new(verdict).claim("both sell, one after the other", (sales.sold, sales.stale) == (2, 0)))
}
