//! A release is told by a message, and the message gets lost.

use std::time::Duration;

use tenure::duration;

use crate::actor::Actor;
use crate::error::Result;
use crate::locks::{LOCK, tenure};
use crate::protocol::Value;
use crate::server::Server;
use crate::setnx_lock::RELEASE;
use crate::story::{Kind, Outcome, Story, Way};
use crate::testbed::{SALE, Testbed};

const CHANNEL: &str = "unlocked:stock:1001";
/// How long the naive waits for a message before it gives up.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long the lock of the usual way lasts: its users wait ten times as long and more.
const TTL: &str = "1500";
/// Far longer than the story.
const LEASE: Duration = Duration::from_secs(30);
/// Within which Tenure must notice, also on a busy machine.
const BOUND: Duration = Duration::from_secs(3);

pub(crate) static STORY: Story = Story {
    id: "F9",
    title: "the message that the lock is free gets lost",
    lesson: "A message is a hint: who waits must ask again after every broken connection, and now and then anyway.",
    stock: 2,
    ways: &[
        Way { kind: Kind::Naive, how: "subscribe, and wait for the message", play: naive },
        Way { kind: Kind::Usual, how: "subscribe, and wait for as long as the lock lasts", play: until_the_lock_ends },
        Way { kind: Kind::Tenure, how: "Mutex, lease 30 s", play: with_tenure },
    ],
};

fn naive(testbed: &Testbed) -> Result<Outcome> {
    let server = testbed.server()?;
    let (mut a, mut b) = (testbed.actor("A")?, testbed.actor("B")?);
    let b_must_wait = begin(&server, &mut a, &mut b, "30000")?;
    let reached = release_unheard(testbed, &server, &mut a, &b)?;
    let heard = b.hear(PATIENCE)?;
    b.end_waiting(std::time::Instant::now(), false);
    let is_free = !server.ask::<bool>(&["EXISTS", LOCK])?;
    Ok(Outcome::new("the lock is free, and B waits on for a message that was said while it was not connected")
        .claim("B had to wait", b_must_wait)
        .claim("the message reaches nobody", reached == Value::Int(0))
        .claim("B hears nothing, though the lock is free", !heard && is_free)
        .claim("only A sells", testbed.sales()?.sold == 1))
}

fn until_the_lock_ends(testbed: &Testbed) -> Result<Outcome> {
    let server = testbed.server()?;
    let (mut a, mut b) = (testbed.actor("A")?, testbed.actor("B")?);
    let b_must_wait = begin(&server, &mut a, &mut b, TTL)?;
    let Value::Int(left) = b.redis(&server, &["PTTL", LOCK])? else {
        return Ok(Outcome::new("").claim("the lock has an end", false));
    };
    let reached = release_unheard(testbed, &server, &mut a, &b)?;
    let left = Duration::from_millis(u64::try_from(left).unwrap_or_default());
    let heard = b.hear(left)?;
    let granted = b.redis(&server, &["SET", LOCK, "B", "NX", "PX", TTL])?.is_yes();
    b.end_waiting(std::time::Instant::now(), granted);
    b.granted()?;
    b.look()?;
    testbed.work(SALE);
    b.sell()?;
    let verdict = format!(
        "B asks again when the lock would have ended: {} too late here, 30 s by Redisson's default",
        duration::show(left)
    );
    Ok(Outcome::new(verdict)
        .claim("B had to wait", b_must_wait)
        .claim("the message reaches nobody, and B hears nothing", reached == Value::Int(0) && !heard)
        .claim("both sell, one after the other", granted && testbed.sales()?.sold == 2))
}

/// A has the lock, and B begins to wait for the message of its release.
fn begin(server: &Server, a: &mut Actor, b: &mut Actor, ttl: &str) -> Result<bool> {
    a.redis(server, &["SET", LOCK, "A", "NX", "PX", ttl])?;
    a.granted()?;
    a.look()?;
    b.subscribe(server, CHANNEL)?;
    b.begin_to_wait(None);
    Ok(b.redis(server, &["SET", LOCK, "B", "NX", "PX", ttl])? == Value::Nil)
}

/// A sells and releases while B's subscription is cut. How many heard the message.
fn release_unheard(testbed: &Testbed, server: &Server, a: &mut Actor, b: &Actor) -> Result<Value> {
    testbed.work(SALE);
    for (client, _) in server.clients()?.into_iter().filter(|(_, subscribed)| *subscribed) {
        server.cut(client)?;
    }
    b.did("its connection is cut");
    testbed.work(SALE);
    a.sell()?;
    a.redis_quietly(server, &["EVAL", RELEASE, "1", LOCK, "A"])?;
    a.give_back()?;
    a.redis(server, &["PUBLISH", CHANNEL, "free"])
}

fn with_tenure(testbed: &Testbed) -> Result<Outcome> {
    let server = testbed.server()?;
    let lock = tenure(server.url(""), LEASE);
    let [mut a] = testbed.actors(["A"], &lock)?;
    let locked = a.try_take(&lock)?;
    a.look()?;
    let others = server.clients()?;
    let [mut b] = testbed.actors(["B"], &lock)?;
    b.begin_to_take(&lock, LEASE)?;
    testbed.until("B waits", || Ok(server.clients()?.iter().any(|(_, subscribed)| *subscribed)))?;
    // B must not come back before the message has gone by.
    b.stop()?;
    for client in server.clients()?.into_iter().filter(|client| others.iter().all(|other| other.0 != client.0)) {
        server.cut(client.0)?;
    }
    b.did("its connection is cut");
    testbed.work(SALE);
    a.sell()?;
    let released = a.give_back()?;
    let deaf_until = std::time::Instant::now();
    b.go_on()?;
    let granted = b.taken_at()?;
    let late = granted.map(|granted| granted.saturating_duration_since(deaf_until));
    if granted.is_some() && b.look()? > 0 {
        testbed.work(SALE);
        b.sell()?;
        b.give_back()?;
    }
    let shown = duration::show(Duration::from_millis(crate::millis(late.unwrap_or_default())));
    Ok(Outcome::new(format!("B finds its connection broken, connects and asks again: granted {shown} later"))
        .claim("A had the lock, and gave it back", locked && released)
        .claim(format!("B is granted the lock within {}", duration::show(BOUND)), late.is_some_and(|late| late <= BOUND))
        .claim("both sell, one after the other", testbed.sales()?.sold == 2))
}
