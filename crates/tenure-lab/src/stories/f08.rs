//! Waiting by polling: what it costs the waiter and the server.

use std::time::{Duration, Instant};

use crate::actor::Actor;
use crate::error::Result;
use crate::locks::{LOCK, tenure};
use crate::protocol::{LockSpec, Request, SetNxSpec};
use crate::story::{Kind, Outcome, Story, Way};
use crate::testbed::{SALE, Testbed};

/// How long B has waited when the counting begins: long enough for all that a wait has to arrange.
const BEFORE: Duration = Duration::from_secs(1);
const COUNTED: Duration = Duration::from_millis(500);
/// Longer than the story, so that no renewal is counted, only the waiting.
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

fn by_recursion(testbed: &Testbed) -> Result<Outcome> {
    let server = testbed.server()?;
    let (mut a, mut b) = (testbed.actor("A")?, testbed.actor("B")?);
    let set = |who: &str| ["SET", LOCK, who, "NX", "PX", "30000"].map(str::to_owned);
    let locked = a.redis(&server, &set("A").each_ref().map(|word| &**word))?.is_yes();
    a.granted()?;
    let before = testbed.requests()?;
    b.begin_to_wait(None);
    b.tell(&Request::Recurse { port: server.port(), command: set("B").into(), stack: STACK })?;
    let died = b.dies(|| Ok(format!("dies: the stack is full after {} calls", testbed.requests()? - before)))?;
    let calls = testbed.requests()? - before;
    a.look()?;
    testbed.work(SALE);
    a.sell()?;
    a.redis(&server, &["DEL", LOCK])?;
    a.give_back()?;
    let signals = [rustix::process::Signal::ABORT, rustix::process::Signal::SEGV].map(|signal| Some(signal.as_raw()));
    Ok(Outcome::new(format!("{calls} calls deep the stack was full: the process died, and all that it did with it"))
        .claim("B dies of it while A holds the lock", locked && signals.contains(&died))
        .claim("only A sells", testbed.sales()?.sold == 1))
}

fn in_a_busy_loop(testbed: &Testbed) -> Result<Outcome> {
    let server = testbed.server()?;
    let lock = asking(server.port(), Duration::ZERO);
    let cost = cost_of_a_wait(testbed, &lock, || Ok(true))?;
    told(testbed, format!("{cost} requests in half a second of waiting"))
        .map(|told| told.claim("it hammers the server: more than those who pause would, whatever else runs", cost > 10))
}

fn every_tenth_of_a_second(testbed: &Testbed) -> Result<Outcome> {
    let server = testbed.server()?;
    let lock = asking(server.port(), Duration::from_millis(100));
    let cost = cost_of_a_wait(testbed, &lock, || Ok(true))?;
    let verdict = format!("{cost} requests in half a second of waiting, and up to 100 ms too late");
    told(testbed, verdict).map(|told| told.claim("it asks on and on", (1..=10).contains(&cost)))
}

fn with_tenure(testbed: &Testbed) -> Result<Outcome> {
    let server = testbed.server()?;
    // A wait that lasts can be seen by others: through a subscription, which is the last that it costs.
    let settled = || Ok(server.clients()?.iter().any(|(_, subscribed)| *subscribed));
    let cost = cost_of_a_wait(testbed, &tenure(server.url(""), LEASE), settled)?;
    let verdict = format!("{cost} requests in half a second of waiting");
    // Now and then it asks all the same, lest a message was lost.
    told(testbed, verdict).map(|told| told.claim("waiting costs no request", cost <= 1))
}

fn asking(port: u16, poll: Duration) -> LockSpec {
    LockSpec::SetNx(SetNxSpec { port, key: LOCK.to_owned(), ttl: LEASE, renewed: false, poll, counter: None })
}

/// How many requests it takes to wait for [`COUNTED`], when the wait has begun.
fn cost_of_a_wait(testbed: &Testbed, lock: &LockSpec, settled: impl Fn() -> Result<bool>) -> Result<u64> {
    let [mut a, mut b] = testbed.actors(["A", "B"], lock)?;
    testbed.until("A is granted the lock", || a.try_take(lock))?;
    let since = Instant::now();
    testbed.let_wait(&mut b, lock, PATIENCE)?;
    testbed.until("B has arranged its wait", settled)?;
    testbed.work(BEFORE.saturating_sub(since.elapsed()));
    let before = testbed.requests()?;
    testbed.work(COUNTED);
    let cost = testbed.requests()? - before;
    sell(testbed, &mut a)?;
    if b.taken()? {
        sell(testbed, &mut b)?;
    }
    Ok(cost)
}

fn sell(testbed: &Testbed, actor: &mut Actor) -> Result<()> {
    if actor.look()? > 0 {
        testbed.work(SALE);
        actor.sell()?;
    }
    actor.give_back().map(drop)
}

fn told(testbed: &Testbed, verdict: String) -> Result<Outcome> {
    let sales = testbed.sales()?;
    Ok(Outcome::new(verdict).claim("both sell, one after the other", (sales.sold, sales.stale) == (2, 0)))
}
