//! A holder that dies, and how soon the next one gets in.

use std::time::Duration;

use tenure::duration;

use crate::cmd::lab::actor::Actor;
use crate::cmd::lab::stage::{LOCK, SALE, Stage, tenure, usual};
use crate::cmd::lab::story::{Kind, Outcome, Story, Way};
use crate::cmd::lab::upset::Played;
use crate::cmd::lab::words::{Lock, Value};

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

fn naive(stage: &Stage) -> Played<Outcome> {
    let server = stage.server()?;
    let (mut a, mut b) = (stage.actor("A")?, stage.actor("B")?);
    let locked = a.redis(&server, &["SETNX", LOCK, "A"])?.is_yes();
    a.granted()?;
    a.did(&format!("works, and would send DEL {LOCK} at the end"));
    a.kill()?;
    let (every, limit) = (Duration::from_millis(50), LEASE);
    let granted = b.insist(every, limit, |b| Ok(b.redis_quietly(&server, &["SETNX", LOCK, "B"])?.is_yes()))?;
    let endless = b.redis_quietly(&server, &["PTTL", LOCK])? == Value::Int(-1);
    Ok(Outcome::new("the dead hold the lock for ever")
        .claim("A had the lock when it died, and it has no end", locked && endless)
        .claim("B waits in vain, and nothing is sold", !granted && stage.sales()?.sold == 0))
}

fn in_redis_as_usual(stage: &Stage) -> Played<Outcome> {
    let server = stage.server()?;
    let freed = freed_after(stage, &usual(&server, LEASE), has_asked)?;
    told(stage, freed, "nobody renews any more: free", LEASE + SLACK)
}

fn on_redis(stage: &Stage) -> Played<Outcome> {
    let server = stage.server()?;
    let freed = freed_after(stage, &tenure(server.url(""), LEASE), has_asked)?;
    told(stage, freed, "nobody renews any more: free, and B woken,", LEASE + SLACK)
}

fn on_sqlite(stage: &Stage) -> Played<Outcome> {
    let url = format!("sqlite:{}", stage.file("locks.db").display());
    let freed = freed_after(stage, &tenure(url, LEASE), stands_in_line)?;
    told(stage, freed, "the kernel tells of the death: free", LEASE / 2)
}

type Begin = fn(&Stage, &mut Actor, &mut Actor, &Lock) -> Played<()>;

fn has_asked(stage: &Stage, _: &mut Actor, b: &mut Actor, lock: &Lock) -> Played<()> {
    stage.let_wait(b, lock, PATIENCE)
}

/// A file hears no requests, but knows who waits.
fn stands_in_line(stage: &Stage, a: &mut Actor, b: &mut Actor, lock: &Lock) -> Played<()> {
    b.begin_to_take(lock, PATIENCE)?;
    stage.until("B stands in line", || Ok(a.waiters(lock)? == 1))
}

/// How long after the holder's death another one was granted the lock, which had begun to wait before.
fn freed_after(stage: &Stage, lock: &Lock, begin_to_wait: Begin) -> Played<Option<Duration>> {
    let [mut a, mut b] = stage.actors(["A", "B"], lock)?;
    stage.until("A is granted the lock", || a.try_take(lock))?;
    begin_to_wait(stage, &mut a, &mut b, lock)?;
    let death = a.kill()?;
    let granted = b.taken_at()?;
    if granted.is_some() && b.look()? > 0 {
        stage.work(SALE);
        b.sell()?;
        b.give_back()?;
    }
    Ok(granted.map(|granted| granted.saturating_duration_since(death)))
}

fn told(stage: &Stage, freed: Option<Duration>, how: &str, bound: Duration) -> Played<Outcome> {
    let after = duration::show(freed.unwrap_or_default());
    let bounded = freed.is_some_and(|freed| freed <= bound);
    Ok(Outcome::new(format!("{how} {after} after the death"))
        .claim(format!("B is granted the lock within {}", duration::show(bound)), bounded)
        .claim("B sells what is there", stage.sales()?.sold == 1))
}
