//! The fair lock is handed over by the release: who has it then, for how long, and what is believed of it.

use std::time::Duration;

use redis::{Connection, cmd};
use tenure::{Guard, Locker, Result};
use tokio::task::JoinHandle;

use super::cost::{calls, reset};
use tenure_testkit::locker::{block_on, connect, must};
use tenure_testkit::{RedisServer, eventually};

const QUEUE: &str = "redisson_lock_queue:{L}";
const CHANNEL: &str = "redisson_lock__channel:{L}";

fn ask<T: redis::FromRedisValue>(raw: &mut Connection, words: &[&str]) -> T {
    cmd(words[0]).arg(&words[1..]).query(raw).unwrap_or_else(|e| panic!("{words:?}: {e}"))
}

fn holders(raw: &mut Connection) -> Vec<String> {
    ask(raw, &["HKEYS", "L"])
}

fn in_line(raw: &mut Connection) -> Vec<String> {
    ask(raw, &["LRANGE", QUEUE, "0", "-1"])
}

/// The channel of the client of an owner.
fn channel_of(owner: &str) -> String {
    format!("{CHANNEL}:{}", owner.rsplit_once(':').expect("an owner").0)
}

/// Waits in line until it listens, and has asked since; says as whom.
async fn waits(
    raw: &mut Connection,
    locker: &Locker,
    lease: Duration,
    note: Option<&str>,
) -> (String, JoinHandle<Result<Guard>>) {
    let mut mutex = locker.mutex("L").fair().lease(lease);
    if let Some(note) = note {
        mutex = mutex.note(note);
    }
    let waiting = tokio::spawn(mutex.lock());
    eventually("it is in line", || !in_line(raw).is_empty());
    let owner = in_line(raw).remove(0);
    let channel = channel_of(&owner);
    eventually("it listens", || ask::<(String, u64)>(raw, &["PUBSUB", "NUMSUB", &channel]).1 == 1);
    // The question behind the subscription.
    tokio::time::sleep(Duration::from_millis(100)).await;
    (owner, waiting)
}

pub(crate) fn a_release_hands_the_lock_to_the_first_in_line() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        for options in ["", "?wake=pubsub"] {
            let url = format!("{}{options}", server.url());
            let (one, other) = (connect(&url).await, connect(&url).await);
            let held = one.mutex("L").fair().lock().await.expect("locked");
            let (owner, waiting) = waits(&mut raw, &other, Duration::from_secs(30), None).await;
            reset(&mut raw);
            let token = held.token();
            held.release().await.expect("given back");
            let guard = must("handed over", waiting).await.expect("no panic").expect("locked");
            assert_eq!((holders(&mut raw), guard.owner_id().to_string()), (vec![owner.clone()], owner));
            assert!(guard.token() > token);
            let counted = calls(&mut raw);
            assert_eq!(counted["evalsha"], 1, "one script for a hand-over: {counted:?}");
            // It is a hold as any other: kept alive, and known by its token.
            let fence: String = ask(&mut raw, &["GET", "redisson_lock_token:{L}"]);
            assert_eq!(fence, guard.token().to_string());
            guard.check().expect("held");
            guard.release().await.expect("given back");
            assert!(holders(&mut raw).is_empty());
        }
    });
}

pub(crate) fn what_was_handed_over_is_kept_alive() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
        let held = one.mutex("L").fair().lock().await.expect("locked");
        let (owner, waiting) = waits(&mut raw, &other, Duration::from_secs(1), None).await;
        held.release().await.expect("given back");
        let guard = must("handed over", waiting).await.expect("no panic").expect("locked");
        for _ in 0..30 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            guard.check().expect("held");
            assert_eq!(holders(&mut raw), [&*owner]);
        }
    });
}

pub(crate) fn who_needs_more_than_a_place_gives_asks_for_it() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
        let held = one.mutex("L").fair().lock().await.expect("locked");
        // A place is kept for half a minute at most, and a note is written by whoever gives it.
        let (owner, waiting) = waits(&mut raw, &other, Duration::from_secs(600), Some("a long one")).await;
        held.release().await.expect("given back");
        let guard = must("handed over", waiting).await.expect("no panic").expect("locked");
        assert!(ask::<i64>(&mut raw, &["PTTL", "L"]) > 500_000);
        let state = one.mutex("L").inspect().await.expect("asked");
        assert_eq!((state.holders[0].owner.as_str(), state.holders[0].note.as_deref()), (&*owner, Some("a long one")));
        assert_eq!(state.holders[0].token, Some(guard.token()));
    });
}

/// One of ours in line that died without a word: its connection stands and it hears nothing.
fn deaf(server: &RedisServer, raw: &mut Connection, place: u64) -> (String, Connection) {
    let owner = "aaaaaaaa-aaaa-8aaa-8aaa-aaaaaaaaaaaa:1".to_owned();
    let (seconds, micros): (u64, u64) = ask(raw, &["TIME"]);
    let ends = (seconds * 1000 + micros / 1000 + place).to_string();
    ask::<u64>(raw, &["RPUSH", QUEUE, &owner]);
    ask::<u64>(raw, &["ZADD", "redisson_lock_timeout:{L}", &ends, &owner]);
    ask::<u64>(raw, &["ZADD", "tenure_lock_line:{L}", &ends, &owner]);
    let mut ear = server.raw();
    cmd("SUBSCRIBE").arg(channel_of(&owner)).query::<redis::Value>(&mut ear).expect("subscribed");
    (owner, ear)
}

pub(crate) fn a_dead_one_that_is_handed_the_lock_costs_its_place_and_not_a_lease() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let locker = connect(&server.url()).await;
        let held = locker.mutex("L").fair().lock().await.expect("locked");
        let (dead, _ear) = deaf(&server, &mut raw, 2000);
        let next = tokio::spawn(locker.mutex("L").fair().lock());
        eventually("the next one is in line", || in_line(&mut raw).len() == 2);
        held.release().await.expect("given back");
        assert_eq!(holders(&mut raw), [&*dead]);
        assert!(ask::<i64>(&mut raw, &["PTTL", "L"]) <= 2005);
        let start = std::time::Instant::now();
        must("its place is over", next).await.expect("no panic").expect("locked").release().await.expect("given back");
        assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    });
}

pub(crate) fn one_that_nobody_hears_of_is_not_handed_the_lock() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let locker = connect(&server.url()).await;
        let held = locker.mutex("L").fair().lock().await.expect("locked");
        let (dead, ear) = deaf(&server, &mut raw, 600_000);
        drop(ear);
        eventually("it is gone", || ask::<(String, u64)>(&mut raw, &["PUBSUB", "NUMSUB", &channel_of(&dead)]).1 == 0);
        held.release().await.expect("given back");
        assert!(holders(&mut raw).is_empty());
        assert_eq!(in_line(&mut raw), [&*dead]);
    });
}

pub(crate) fn a_word_that_fits_no_place_grants_nothing() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
        let held = one.mutex("L").fair().lock().await.expect("locked");
        let (owner, waiting) = waits(&mut raw, &other, Duration::from_secs(30), None).await;
        let (channel, number) = (channel_of(&owner), owner.rsplit_once(':').expect("an owner").1);
        let late = ask::<String>(&mut raw, &["ZSCORE", "tenure_lock_line:{L}", &owner]).parse::<u64>().expect("a time") - 1;
        for word in
            [format!("grant {number} 9 {late}"), format!("call {number}"), format!("grant {number} 9"), "grant".to_owned()]
        {
            ask::<u64>(&mut raw, &["PUBLISH", &channel, &word]);
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!waiting.is_finished());
        held.release().await.expect("given back");
        let guard = must("handed over", waiting).await.expect("no panic").expect("locked");
        assert!(guard.token().get() > 9);
    });
}

pub(crate) fn who_leaves_with_the_lock_in_hand_hands_it_on() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
        for _ in 0..20 {
            let held = one.mutex("L").fair().lock().await.expect("locked");
            let (_, first) = waits(&mut raw, &other, Duration::from_secs(30), None).await;
            let second = tokio::spawn(one.mutex("L").fair().lock());
            eventually("both are in line", || in_line(&mut raw).len() == 2);
            let (released, ()) = tokio::join!(held.release(), async { first.abort() });
            released.expect("given back");
            must("served", second).await.expect("no panic").expect("locked").release().await.expect("given back");
            eventually("nobody holds it", || holders(&mut raw).is_empty() && in_line(&mut raw).is_empty());
        }
    });
}
