//! The golden vectors of Redisson's semaphores and of its latch, and of messages in a cluster.

use std::time::Duration;

use redis::cmd;
use tenure::{Error, Guard};

use super::java::{C, Ear, HELD, Java, LATCH_CHANNEL, LOCK_CHANNEL, PERMITS_CHANNEL, message, now};
use tenure_testkit::locker::{block_on, connect, must};
use tenure_testkit::server::{Setup, start};
use tenure_testkit::{RedisServer, eventually};

const LONG: Duration = Duration::from_secs(600);
/// The end of a permit that has none.
const NEVER: i64 = 922_337_203_685_477;

fn told(number: &str) -> [(String, String); 1] {
    [message(PERMITS_CHANNEL, number)]
}

pub(crate) fn golden_vector_17_a_plain_counter_of_permits() {
    let server = RedisServer::start();
    let (mut java, mut ear) = (Java::at(&server), Ear::at(&server));
    block_on(async {
        let locker = connect(&format!("{}?semaphore=counter", server.url())).await;
        assert!(java.try_set(PERMITS_CHANNEL, 3, "3"));
        assert!(!java.try_set(PERMITS_CHANNEL, 9, "9"));
        assert_eq!(ear.heard(), told("3"));
        let permits = locker.semaphore("L", 9);
        let two = permits.acquire_many(2).await.expect("acquired");
        assert_eq!((java.get("L").as_deref(), java.pttl("L")), (Some("1"), -1));
        assert!(permits.try_acquire_many_for(2, Duration::ZERO).await.expect("asked").is_none());
        two.release().await.expect("given back");
        assert_eq!((java.get("L").as_deref(), ear.heard()), (Some("3"), told("3").to_vec()));
        assert_eq!(java.keys(), ["L", "redisson_lock_token:{L}"], "all that Redisson sees is the number");

        // Below zero there is nothing to be had.
        let two = permits.acquire_many(2).await.expect("acquired");
        java.add_permits(-6);
        assert_eq!((java.get("L").as_deref(), ear.heard()), (Some("-5"), told("-5").to_vec()));
        assert!(permits.try_acquire().await.expect("asked").is_none());
        two.release().await.expect("given back");
        // Redisson tells a number below zero too, over which its own listeners fall.
        assert_eq!((java.get("L").as_deref(), ear.heard()), (Some("-3"), vec![]));
        let waiting = tokio::spawn(permits.acquire());
        java.add_permits(4);
        must("woken", waiting).await.expect("no panic").expect("acquired").release().await.expect("given back");

        // Where there is no number the first of ours sets it, and says so: one of Java's may wait for that.
        java.run(&["DEL", "L"]);
        ear.heard();
        let permit = permits.acquire().await.expect("acquired");
        assert_eq!((java.get("L").as_deref(), ear.heard()), (Some("8"), told("8").to_vec()));
        assert!(java.pttl("L") > 0, "nothing of ours stays for ever");
        permit.release().await.expect("given back");
        assert_eq!(ear.heard(), told("9"));
    });
}

pub(crate) fn golden_vector_18_a_new_number_keeps_its_time_to_live() {
    let server = RedisServer::start();
    let (mut java, mut ear) = (Java::at(&server), Ear::at(&server));
    block_on(async {
        let locker = connect(&server.url()).await;
        let permits = locker.semaphore("L", 0).lease_fixed(LONG);
        java.run(&["SET", "L", "3", "PX", "900000"]);
        // Redisson's change of the number makes it stay forever.
        permits.resize(4).await.expect("resized");
        assert_eq!((java.get("L").as_deref(), ear.heard()), (Some("4"), told("4").to_vec()));
        assert!((1..=900_000).contains(&java.pttl("L")), "{}", java.pttl("L"));
        // Those who take and give back do not change it either, and the list of permits ends with the number, as Redisson's does.
        let permit = permits.acquire().await.expect("acquired");
        for key in ["L", HELD] {
            assert!((1..=900_000).contains(&java.pttl(key)), "{key}: {}", java.pttl(key));
        }
        permit.release().await.expect("given back");
        assert!((1..=900_000).contains(&java.pttl("L")));
        // A number that is to stay forever does.
        java.run(&["PERSIST", "L"]);
        permits.resize(5).await.expect("resized");
        let permit = permits.acquire().await.expect("acquired");
        assert_eq!((java.pttl("L"), java.get("L").as_deref()), (-1, Some("4")));
        permit.release().await.expect("given back");
    });
}

pub(crate) fn golden_vector_19_permits_are_sixteen_bytes_with_an_end() {
    let server = RedisServer::start();
    let (mut java, mut ear) = (Java::at(&server), Ear::at(&server));
    block_on(async {
        let locker = connect(&server.url()).await;
        let permits = locker.semaphore("L", 0).lease_fixed(LONG);
        assert!(java.try_set(PERMITS_CHANNEL, 2, "2"));
        java.take_permit([2; 16], NEVER);
        let start = now();
        let ours = permits.acquire().await.expect("acquired");
        let held = java.held();
        let [(id, until), (never, end)] = &held[..] else { panic!("{held:?}") };
        assert_eq!((id.len(), &**never, *end), (16, &[2; 16][..], NEVER));
        assert!((start - 60_000..=now() + 660_000).contains(until) && *until > start, "{until}");
        assert_eq!(java.get("L").as_deref(), Some("0"));
        let holders = permits.inspect().await.expect("inspected").holders;
        let left = |owner: &str| holders.iter().find(|holder| holder.owner == owner).and_then(|holder| holder.expires_in);
        assert!(left(&ours.owner_id().to_string()).is_some_and(|left| left <= LONG), "{holders:?}");
        assert!(left(&"02".repeat(16)).is_some_and(|left| left > LONG), "{holders:?}");
        assert!(permits.try_acquire().await.expect("asked").is_none());
        assert_eq!(ear.heard(), told("2"));

        // Given back after its end: not held, but the permit comes back, and is told.
        cmd("ZADD").arg(HELD).arg("XX").arg(now() - 1000).arg(id).query::<()>(&mut server.raw()).expect("set");
        assert!(matches!(ours.release().await, Err(Error::Lost(_))));
        assert_eq!((java.get("L").as_deref(), ear.heard()), (Some("1"), told("1").to_vec()));
        assert_eq!(java.held(), [(vec![2; 16], NEVER)], "that of Java has no end");
        // One that is in nobody's list is nobody's.
        let gone = permits.acquire().await.expect("acquired");
        cmd("ZREM").arg(HELD).arg(&java.held()[0].0).query::<()>(&mut server.raw()).expect("removed");
        assert!(matches!(gone.release().await, Err(Error::Lost(_))));
        assert_eq!((java.get("L").as_deref(), ear.heard()), (Some("0"), vec![]));
        // Redisson tells how many of a batch came back; ours how many there are now, as for a single one.
        java.run(&["SET", "L", "3"]);
        permits.acquire_many(2).await.expect("acquired").release().await.expect("given back");
        assert_eq!((java.get("L").as_deref(), ear.heard()), (Some("3"), told("3").to_vec()));
    });
}

pub(crate) fn golden_vector_20_all_expired_permits_come_back_at_once() {
    let server = RedisServer::start();
    let (mut java, mut ear) = (Java::at(&server), Ear::at(&server));
    block_on(async {
        let locker = connect(&server.url()).await;
        java.run(&["SET", "L", "3"]);
        for id in 1..=3 {
            java.take_permit([id; 16], now() - 1000);
        }
        // Redisson sweeps as many as are asked for, and leaves the others until the next sweep.
        let ours = locker.semaphore("L", 0).lease_fixed(LONG).try_acquire().await.expect("asked").expect("acquired");
        assert_eq!((java.get("L").as_deref(), java.held().len()), (Some("2"), 1));
        assert_eq!(ear.heard(), told("2"));
        ours.release().await.expect("given back");
        assert_eq!((java.get("L").as_deref(), ear.heard()), (Some("3"), told("3").to_vec()));
        assert_eq!(java.keys(), ["L", "redisson_lock_token:{L}"]);
    });
}

pub(crate) fn golden_vector_21_a_latch_is_a_number_that_goes_at_zero() {
    let server = RedisServer::start();
    let (mut java, mut ear) = (Java::at(&server), Ear::at(&server));
    let told = |text: &str| vec![message(LATCH_CHANNEL, text)];
    block_on(async {
        let locker = connect(&server.url()).await;
        let latch = locker.latch("L");
        assert!(latch.set(2).await.expect("asked"));
        assert_eq!((java.get("L").as_deref(), ear.heard()), (Some("2"), told("1")));
        // Redisson's latch stays forever; ours ends when nobody has asked for it for a week.
        assert!(java.pttl("L") > 0);
        assert!(!latch.set(5).await.expect("asked"));
        assert!(!java.try_set(LATCH_CHANNEL, 5, "1"));
        assert_eq!(latch.count_down().await.expect("counted"), 1);
        assert_eq!((java.get("L").as_deref(), ear.heard()), (Some("1"), vec![]));
        assert_eq!(latch.count_down().await.expect("counted"), 0);
        assert_eq!((java.exists("L"), ear.heard()), (false, told("0")));
        assert_eq!(latch.count_down().await.expect("counted"), 0);
        assert_eq!((java.keys(), ear.heard()), (vec![], vec![]));

        // Java sets and counts, ours waits.
        assert!(java.try_set(LATCH_CHANNEL, 1, "1"));
        let waiting = tokio::spawn(latch.wait());
        eventually("it waits", || locker.stats().waiting == 1);
        assert_eq!(java.pttl("L"), -1);
        java.run(&["DEL", "L"]);
        java.run(&["PUBLISH", LATCH_CHANNEL, "0"]);
        must("open", waiting).await.expect("no panic").expect("open");
        assert_eq!(ear.heard(), [told("1"), told("0")].concat());
        // Redisson says 1 when a latch is removed, which closes it for good for those who wait.
        assert!(latch.set(3).await.expect("asked"));
        latch.remove().await.expect("removed");
        assert_eq!((java.keys(), ear.heard()), (vec![], [told("1"), told("0")].concat()));
        latch.remove().await.expect("there is none");
        assert_eq!(ear.heard(), []);
    });
}

pub(crate) fn golden_vector_22_a_cluster_tells_those_of_its_own_way_alone() {
    let server = start(&Setup::default().lines(&["cluster-enabled yes"]));
    let mut java = Java::at(&server);
    java.run(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    eventually("it serves", || java.ask::<String>(&["CLUSTER", "INFO"]).contains("cluster_state:ok"));
    let url = format!("redis+cluster://127.0.0.1:{}", server.port);
    let channel = format!("{LOCK_CHANNEL}:{C}");
    for (options, hears, deaf) in [("", "SPUBLISH", "PUBLISH"), ("?sharded=off", "PUBLISH", "SPUBLISH")] {
        let listen = |how: &str| {
            let mut raw = server.raw();
            let subscribe = if how == "SPUBLISH" { "SSUBSCRIBE" } else { "SUBSCRIBE" };
            for channel in [LOCK_CHANNEL, &channel] {
                cmd(subscribe).arg(channel).query::<redis::Value>(&mut raw).expect("subscribed");
            }
            raw.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
            raw
        };
        let (mut listener, mut stranger) = (listen(hears), listen(deaf));
        block_on(async {
            let locker = connect(&format!("{url}{options}")).await;
            let release = async |guard: Guard| guard.release().await.expect("given back");
            release(locker.mutex("L").lock().await.expect("locked")).await;
            let fair = locker.mutex("L").fair().lock().await.expect("locked");
            java.fair_lock(C, 1000, 600_000).expect("busy");
            release(fair).await;
            java.fair_give_up(C, 0);
        });
        for how in [hears, deaf] {
            java.run(&[how, LOCK_CHANNEL, "end"]);
        }
        let next = |raw: &mut redis::Connection| {
            let told: (String, String, String) = redis::from_redis_value(raw.recv_response().expect("told")).expect("a message");
            (told.1, told.2)
        };
        let heard: Vec<_> = (0..3).map(|_| next(&mut listener)).collect();
        assert_eq!(heard, [message(LOCK_CHANNEL, "0"), message(&channel, "0"), message(LOCK_CHANNEL, "end")]);
        assert_eq!(next(&mut stranger), message(LOCK_CHANNEL, "end"));
    }
}
