//! What Redisson's own tests ask of its lock, asked of ours.

use std::time::{Duration, Instant};

use tenure::Owner;
use tokio::task::JoinSet;

use super::java::{Ear, Java, share};
use tenure_testkit::locker::{block_on, connect, must};
use tenure_testkit::{RedisServer, eventually};

pub(crate) fn no_subscription_is_left_behind_by_a_crowd() {
    let server = RedisServer::start();
    let mut java = Java::at(&server);
    for options in ["", "?wake=pubsub"] {
        block_on(async {
            let url = format!("{}{options}", server.url());
            let mut tasks = JoinSet::new();
            for _ in 0..2 {
                // All names of a client share one connection.
                let locker = connect(&url).await;
                for task in 0..16 {
                    let locker = locker.clone();
                    tasks.spawn(async move {
                        for round in 0..20 {
                            let mutex = locker.mutex(format!("L{}", (task + round) % 5));
                            let mutex = if task % 4 == 0 { mutex.fair() } else { mutex };
                            mutex.lock().await.expect("locked").release().await.expect("given back");
                        }
                    });
                }
            }
            while let Some(done) = must("all come to their turn", tasks.join_next()).await {
                done.expect("no panic");
            }
        });
        eventually("nobody listens any more", || java.ask::<Vec<String>>(&["PUBSUB", "CHANNELS"]).is_empty());
    }
}

pub(crate) fn no_subscription_is_left_behind_by_those_who_give_up() {
    let server = RedisServer::start();
    let mut java = Java::at(&server);
    block_on(async {
        let url = format!("{}?wake=pubsub", server.url());
        let (holder, locker) = (connect(&url).await, connect(&url).await);
        let (mut held, mut tasks) = (Vec::new(), JoinSet::new());
        for name in 0..300 {
            held.push(holder.mutex(format!("L{name}")).lock().await.expect("locked"));
        }
        for name in 0..300 {
            // At any point of their way.
            let (wait, mutex) = (std::time::Duration::from_millis(1 + name % 30), locker.mutex(format!("L{name}")));
            tasks.spawn(async move { drop(tokio::time::timeout(wait, mutex.lock()).await) });
        }
        tasks.join_all().await;
        eventually("nobody listens any more", || java.ask::<Vec<String>>(&["PUBSUB", "CHANNELS"]).is_empty());
        drop(held);
    });
}

pub(crate) fn a_channel_that_is_refused_leaves_no_other_subscription_behind() {
    let server = RedisServer::start();
    let mut java = Java::at(&server);
    java.ask::<()>(&["ACL", "SETUSER", "u", "on", ">p", "~*", "+@all", "resetchannels", "&redisson_lock__channel:{allowed}"]);
    block_on(async {
        let holder = connect(&server.url()).await;
        let locker = connect(&format!("redis://u:p@127.0.0.1:{}?wake=pubsub", server.port)).await;
        let _held = [holder.mutex("allowed").lock().await, holder.mutex("refused").lock().await];
        let waits = tokio::spawn(locker.mutex("allowed").lock());
        eventually("the subscription", || java.ask::<Vec<String>>(&["PUBSUB", "CHANNELS"]).len() == 1);
        assert!(locker.mutex("refused").try_lock_for(Duration::from_millis(100)).await.expect("asked").is_none());
        waits.abort();
        eventually("nobody listens any more", || java.ask::<Vec<String>>(&["PUBSUB", "CHANNELS"]).is_empty());
    });
}

pub(crate) fn the_time_to_live_is_the_lease_and_ends_with_the_release() {
    let server = RedisServer::start();
    let mut java = Java::at(&server);
    block_on(async {
        let locker = connect(&server.url()).await;
        let owner = Owner::new();
        let mutex = locker.mutex("L").lease_fixed(Duration::from_secs(3600)).owner(&owner);
        let [one, two, three] = [mutex.lock().await, mutex.lock().await, mutex.lock().await].map(|guard| guard.expect("locked"));
        assert_eq!(one.hold_count(), 3);
        two.release().await.expect("one of three");
        three.release().await.expect("one of two");
        let left = java.pttl("L");
        assert!((3_480_000..=3_600_000).contains(&left), "{left}");
        one.release().await.expect("the last one");
        assert_eq!(java.pttl("L"), -2);
        let guard = locker.mutex("L").lock().await.expect("locked");
        assert!((1..=30_000).contains(&java.pttl("L")), "the locker's lease");
        assert_eq!(guard.lease(), Duration::from_secs(30));
    });
}

pub(crate) fn a_limited_wait_is_waited_out() {
    let server = RedisServer::start();
    block_on(async {
        let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
        let wait = Duration::from_millis(700);
        for fair in [false, true] {
            let name = format!("L{fair}");
            let _held = one.mutex(&name).lock().await.expect("locked");
            let mutex = if fair { other.mutex(&name).fair() } else { other.mutex(&name) };
            let start = Instant::now();
            assert!(must("it ends", mutex.try_lock_for(wait)).await.expect("asked").is_none());
            assert!(start.elapsed() >= wait, "{:?}", start.elapsed());
        }
    });
}

pub(crate) fn a_stopped_server_is_an_error_and_no_hang() {
    let mut server = RedisServer::start();
    block_on(async {
        let locker = connect(&server.url()).await;
        server.kill();
        let wait = Duration::from_millis(500);
        let failed = must("an answer", locker.mutex("L").try_lock_for(wait)).await.expect_err("no server");
        assert!(failed.is_transient(), "{failed}");
        must("an answer", locker.mutex("L").try_lock()).await.expect_err("no server");
        must("an answer", locker.rwlock("M").try_read_for(wait)).await.expect_err("no server");
        must("an answer", locker.semaphore("N", 1).try_acquire()).await.expect_err("no server");
    });
}

pub(crate) fn after_a_restart_new_holds_are_kept_alive() {
    let mut server = RedisServer::start();
    block_on(async {
        let locker = connect(&format!("{}?lease=6s", server.url())).await;
        let take = async || {
            let plain = locker.mutex("plain").lock().await.expect("locked");
            let fair = locker.mutex("fair").fair().lock().await.expect("locked");
            let writer = locker.rwlock("write").write().await.expect("written");
            let reader = locker.rwlock("read").read().await.expect("read");
            [plain, fair, writer, reader, locker.semaphore("permit", 1).acquire().await.expect("acquired")]
        };
        let before = take().await;
        // Nothing is kept on disk.
        server.kill();
        server.restart();
        for guard in before {
            must("told", guard.lost()).await;
            assert!(matches!(guard.release().await, Err(tenure::Error::Lost(_))));
        }
        let again = must("held again", take()).await;
        let renewed = locker.stats().renewed;
        // Renewed at a third of the lease.
        must("each is renewed past a lease", async {
            while locker.stats().renewed < renewed + 4 * 5 && again.iter().all(tenure::Guard::is_valid) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        for guard in again {
            guard.check().expect("kept alive");
            guard.release().await.expect("given back");
        }
    });
}

pub(crate) fn a_hold_after_a_nested_pair_is_kept_alive() {
    let server = RedisServer::start();
    block_on(async {
        let locker = connect(&format!("{}?lease=6s", server.url())).await;
        let owner = Owner::new();
        let mutex = locker.mutex("L").owner(&owner);
        let (outer, inner) = (mutex.lock().await.expect("locked"), mutex.lock().await.expect("re-entered"));
        inner.release().await.expect("one of two");
        outer.release().await.expect("the last one");
        let next = locker.mutex("L").lock().await.expect("locked by another");
        let renewed = locker.stats().renewed;
        must("renewed past a lease", async {
            while locker.stats().renewed < renewed + 4 && next.is_valid() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        next.check().expect("kept alive");
    });
}

pub(crate) fn many_names_of_all_kinds_are_given_back() {
    let server = RedisServer::start();
    let (mut java, mut ear) = (Java::at(&server), Ear::at(&server));
    block_on(async {
        let locker = connect(&server.url()).await;
        let mut tasks = JoinSet::new();
        for task in 0..8 {
            let locker = locker.clone();
            tasks.spawn(async move {
                for n in 0..50 {
                    let name = |kind| format!("{kind}:{task}:{n}");
                    let lock = locker.mutex(name("lock")).lock().await.expect("locked");
                    let permit = locker.semaphore(name("permit"), 2).acquire().await.expect("acquired");
                    let tried = locker.mutex(name("try")).try_lock().await.expect("asked").expect("locked");
                    for guard in [lock, permit, tried] {
                        guard.release().await.expect("given back");
                    }
                }
            });
        }
        while let Some(done) = must("all are done", tasks.join_next()).await {
            done.expect("no panic");
        }
        assert!(locker.list("").await.expect("listed").is_empty());
    });
    let mut locks = java.keys();
    locks.retain(|key| key.starts_with("lock:") || key.starts_with("try:") || key.ends_with(":timeout"));
    assert!(locks.is_empty(), "{locks:?}");
    assert_eq!(java.get("permit:7:49").as_deref(), Some("2"));
    assert_eq!(ear.heard().iter().filter(|(_, text)| text == "0").count(), 800, "each lock told its release");
}

pub(crate) fn a_name_with_a_tag_of_its_own_does_for_all_kinds() {
    let server = RedisServer::start();
    let (mut java, mut ear) = (Java::at(&server), Ear::at(&server));
    block_on(async {
        let locker = connect(&server.url()).await;
        let reader = locker.rwlock("{test}:rw").read().await.expect("read");
        let of_l = share(&reader.owner_id().to_string(), 1);
        assert!(java.exists(&of_l.replace("{L}", "{test}:rw")), "{:?}", java.keys());
        reader.release().await.expect("given back");
        let permit = locker.semaphore("{test}:permits", 1).acquire().await.expect("acquired");
        assert!(java.exists("{test}:permits:timeout"), "{:?}", java.keys());
        permit.release().await.expect("given back");
        assert!(locker.latch("{test}:latch").set(1).await.expect("asked"));
        let fair = locker.mutex("{test}:fair").fair().lock().await.expect("locked");
        let waiting = tokio::spawn(locker.mutex("{test}:fair").fair().lock());
        eventually("in the queue", || java.exists("redisson_lock_queue:{test}:fair"));
        fair.release().await.expect("given back");
        let next = must("its turn", waiting).await.expect("no panic").expect("locked").owner_id().client;
        let channels: Vec<String> = ear.heard().into_iter().map(|(channel, _)| channel).collect();
        let fair = format!("redisson_lock__channel:{{test}}:fair:{next}");
        // The first of permits tells of nothing: none was left.
        let expected = [
            "redisson_rwlock:{test}:rw",
            "redisson_sc:{test}:permits",
            "redisson_countdownlatch__channel__{{test}:latch}",
            &fair,
        ];
        assert_eq!(channels, expected);
    });
}
