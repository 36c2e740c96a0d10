//! A holder that dies between two commands which should have been one.

use std::time::Duration;

use crate::error::Result;
use crate::locks::{LOCK, setnx, tenure};
use crate::protocol::LockSpec;
use crate::story::{Kind, Outcome, Story, Way};
use crate::testbed::Testbed;

const LEASE: Duration = Duration::from_millis(600);
/// What the naive would have set, had it lived.
const TTL: &str = "1";
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) static STORY: Story = Story {
    id: "F2",
    title: "the process dies between SETNX and EXPIRE",
    lesson: "A lock and its end must be set in one step, or a crash between them locks for ever.",
    stock: 1,
    ways: &[
        Way { kind: Kind::Naive, how: "SETNX, then EXPIRE", play: naive },
        Way { kind: Kind::Usual, how: "SET NX PX in one command", play: in_one_command },
        Way { kind: Kind::Tenure, how: "Mutex: lock and lease in one script", play: with_tenure },
    ],
};

fn naive(testbed: &Testbed) -> Result<Outcome> {
    let server = testbed.server()?;
    let (mut a, mut b) = (testbed.actor("A")?, testbed.actor("B")?);
    let locked = a.redis(&server, &["SETNX", LOCK, "A"])?.is_yes();
    a.granted()?;
    a.did(&format!("is about to send EXPIRE {LOCK} {TTL}"));
    a.kill()?;
    let every = Duration::from_millis(50);
    let granted = b.insist(every, PATIENCE, |b| Ok(b.redis_quietly(&server, &["SETNX", LOCK, "B"])?.is_yes()))?;
    let end: i64 = server.ask(&["PTTL", LOCK])?;
    Ok(Outcome::new("the key has no end (PTTL -1): nobody sells any more until somebody deletes it by hand")
        .claim("A had the lock when it died", locked)
        .claim("the lock never ends", end == -1)
        .claim("B waits in vain, and nothing is sold", !granted && testbed.sales()?.sold == 0))
}

fn in_one_command(testbed: &Testbed) -> Result<Outcome> {
    let server = testbed.server()?;
    dies_and_another_sells(testbed, &setnx(&server, LEASE), "the lock has its end from the start: B sells when it is over")
}

fn with_tenure(testbed: &Testbed) -> Result<Outcome> {
    let server = testbed.server()?;
    dies_and_another_sells(testbed, &tenure(server.url(""), LEASE), "there is no moment without an end: B sells when it is over")
}

fn dies_and_another_sells(testbed: &Testbed, lock: &LockSpec, verdict: &str) -> Result<Outcome> {
    let [mut a, mut b] = testbed.actors(["A", "B"], lock)?;
    let locked = a.try_take(lock)?;
    a.kill()?;
    let granted = b.take(lock, PATIENCE)?;
    if granted {
        testbed.sell_one(&mut b)?;
    }
    Ok(Outcome::new(verdict)
        .claim("A had the lock when it died", locked)
        .claim("B is granted the lock, and sells what is there", granted && testbed.sales()?.sold == 1))
}
