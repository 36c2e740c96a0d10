//! A holder that dies, and how soon the next one gets in.

use std::time::Duration;

use tenure::duration;

use crate::actor::Actor;
use crate::error::Result;
use crate::locks::{LOCK, setnx, tenure};
use crate::protocol::{LockSpec, Value};
use crate::story::{Kind, Outcome, Story, Way};
use crate::testbed::Testbed;

const LEASE: Duration = Duration::from_millis(1500);
const PATIENCE: Duration = Duration::from_secs(5);
/// What a busy machine may add.
const SLACK: Duration = Duration::from_secs(2);

pub(crate) static STORY: Story = Story {
    id: "F3",
    title: "the holder dies without giving the lock back",
    lesson: "A lock must end without its holder: after its lease, or at once where the death can be seen.",
    stock: 1,
    ways: &[
        Way { kind: Kind::Naive, how: "SETNX, and DEL at the end", play: naive },
        Way { kind: Kind::Usual, how: "SET NX PX with 1.5 s, renewed", play: in_redis_as_usual },
        Way { kind: Kind::Tenure, how: "Mutex on Redis, lease 1.5 s", play: on_redis },
        Way { kind: Kind::Tenure, how: "Mutex on the embedded store, lease 1.5 s", play: on_sqlite },
    ],
};

fn naive(testbed: &Testbed) -> Result<Outcome> {
    let server = testbed.server()?;
    let (mut a, mut b) = (testbed.actor("A")?, testbed.actor("B")?);
    let locked = a.redis(&server, &["SETNX", LOCK, "A"])?.is_yes();
    a.granted()?;
    a.did(&format!("works, and would send DEL {LOCK} at the end"));
    a.kill()?;
    let (every, limit) = (Duration::from_millis(50), LEASE);
    let granted = b.insist(every, limit, |b| Ok(b.redis_quietly(&server, &["SETNX", LOCK, "B"])?.is_yes()))?;
    let endless = b.redis_quietly(&server, &["PTTL", LOCK])? == Value::Int(-1);
    Ok(Outcome::new("the dead hold the lock for ever")
        .claim("A had the lock when it died, and it has no end", locked && endless)
        .claim("B waits in vain, and nothing is sold", !granted && testbed.sales()?.sold == 0))
}

fn in_redis_as_usual(testbed: &Testbed) -> Result<Outcome> {
    let server = testbed.server()?;
    let freed = freed_after(testbed, &setnx(&server, LEASE), has_asked)?;
    told(testbed, freed, "nobody renews any more: free", LEASE + SLACK)
}

fn on_redis(testbed: &Testbed) -> Result<Outcome> {
    let server = testbed.server()?;
    let freed = freed_after(testbed, &tenure(server.url(""), LEASE), has_asked)?;
    told(testbed, freed, "nobody renews any more: free, and B woken,", LEASE + SLACK)
}

fn on_sqlite(testbed: &Testbed) -> Result<Outcome> {
    let url = format!("sqlite:{}", testbed.file("locks.db").display());
    let freed = freed_after(testbed, &tenure(url, LEASE), stands_in_the_queue)?;
    told(testbed, freed, "the kernel tells of the death: free", LEASE / 2)
}

type Begin = fn(&Testbed, &mut Actor, &mut Actor, &LockSpec) -> Result<()>;

fn has_asked(testbed: &Testbed, _: &mut Actor, b: &mut Actor, lock: &LockSpec) -> Result<()> {
    testbed.let_wait(b, lock, PATIENCE)
}

/// A file counts no requests, but knows the waiters.
fn stands_in_the_queue(testbed: &Testbed, a: &mut Actor, b: &mut Actor, lock: &LockSpec) -> Result<()> {
    b.begin_to_take(lock, PATIENCE)?;
    testbed.until("B stands in the queue", || Ok(a.waiters(lock)? == 1))
}

/// How long after the holder's death another one was granted the lock, which had begun to wait before.
fn freed_after(testbed: &Testbed, lock: &LockSpec, begin_to_wait: Begin) -> Result<Option<Duration>> {
    let [mut a, mut b] = testbed.actors(["A", "B"], lock)?;
    testbed.until("A is granted the lock", || a.try_take(lock))?;
    begin_to_wait(testbed, &mut a, &mut b, lock)?;
    let death = a.kill()?;
    let granted = b.taken_at()?;
    if granted.is_some() {
        testbed.sell_one(&mut b)?;
    }
    Ok(granted.map(|granted| granted.saturating_duration_since(death)))
}

fn told(testbed: &Testbed, freed: Option<Duration>, how: &str, bound: Duration) -> Result<Outcome> {
    let after = duration::show(freed.unwrap_or_default());
    let bounded = freed.is_some_and(|freed| freed <= bound);
    Ok(Outcome::new(format!("{how} {after} after the death"))
        .claim(format!("B is granted the lock within {}", duration::show(bound)), bounded)
        .claim("B sells what is there", testbed.sales()?.sold == 1))
}
