//! Keys, channels and messages as Redisson and the others write them.

use std::time::Duration;

use redis::{Connection, cmd};
use tenure::Token;

use tenure_testkit::locker::{block_on, connect, must};
use tenure_testkit::{RedisServer, eventually};

const JAVA: &str = "11111111-1111-1111-1111-111111111111:1";

fn pttl(raw: &mut Connection, key: &str) -> i64 {
    cmd("PTTL").arg(key).query(raw).expect("asked")
}

fn exists(raw: &mut Connection, key: &str) -> bool {
    cmd("EXISTS").arg(key).query(raw).expect("asked")
}

/// What is published on Redisson's channel of the lock `L`.
fn channel_of_l(listener: &mut Connection) -> redis::PubSub<'_> {
    let mut channel = listener.as_pubsub();
    channel.subscribe("redisson_lock__channel:{L}").expect("subscribed");
    channel.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
    channel
}

pub(crate) fn golden_vector_1_a_hash_with_one_field_and_a_time_to_live() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let (a, b) = (connect(&server.url()).await, connect(&server.url()).await);
        let guard = a.mutex("L").lock().await.expect("locked");
        let fields: Vec<(String, String)> = cmd("HGETALL").arg("L").query(&mut raw).expect("a hash");
        assert_eq!(fields, [(guard.owner_id().to_string(), "1".to_owned())]);
        let left = pttl(&mut raw, "L");
        assert!((25_000..=30_000).contains(&left), "{left}");
        assert!(b.mutex("L").try_lock().await.expect("asked").is_none());
        // Java's count of 2 is our count of guards: re-entry is not told to the server.
        let again = guard.reenter().expect("held");
        assert_eq!(cmd("HGET").arg("L").arg(guard.owner_id().to_string()).query::<u32>(&mut raw).expect("asked"), 1);
        drop(guard);
        again.release().await.expect("given back");
        assert!(!exists(&mut raw, "L"));
        // Braces in a name bring their own hash tag.
        let _tagged = a.mutex("{a}b").lock().await.expect("locked");
        assert!(exists(&mut raw, "{a}b") && exists(&mut raw, "redisson_lock_token:{a}b"));
        assert!(exists(&mut raw, "redisson_lock_token:{L}"));
    });
}

pub(crate) fn golden_vector_2_a_release_publishes_zero_once() {
    let server = RedisServer::start();
    let mut listener = server.raw();
    let mut channel = channel_of_l(&mut listener);
    block_on(async {
        let (a, b) = (connect(&server.url()).await, connect(&server.url()).await);
        let guard = a.mutex("L").lock().await.expect("locked");
        // Not the owner: nothing happens, nothing is published.
        assert!(b.mutex("L").try_lock().await.expect("asked").is_none());
        guard.release().await.expect("given back");
        b.mutex("L").lock().await.expect("locked").release().await.expect("given back");
    });
    // Redisson remembers each release under a key, lest a repeated one counts twice. Owners of ours hold once: nothing to remember.
    let remembered: Vec<String> = cmd("KEYS").arg("redisson_unlock_latch*").query(&mut server.raw()).expect("listed");
    assert!(remembered.is_empty(), "{remembered:?}");
    cmd("PUBLISH").arg("redisson_lock__channel:{L}").arg("end").query::<u32>(&mut server.raw()).expect("published");
    let messages: Vec<String> = (0..3).map(|_| channel.get_message().expect("a message").get_payload().expect("text")).collect();
    assert_eq!(messages, ["0", "0", "end"]);
}

pub(crate) fn owners_of_permits_that_are_gone_are_forgotten() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    for options in ["", "?semaphore=counter"] {
        cmd("FLUSHALL").query::<()>(&mut raw).expect("emptied");
        // As Java leaves it: without an expiry.
        cmd("SET").arg("S").arg(3).query::<()>(&mut raw).expect("written");
        block_on(async {
            let locker = connect(&format!("{}{options}", server.url())).await;
            let semaphore = locker.semaphore("S", 0);
            // One of ours that died, and whose time is over.
            let held = if options.is_empty() { "{S}:timeout" } else { "tenure_permits:{S}" };
            cmd("DECR").arg("S").query::<()>(&mut raw).expect("written");
            cmd("ZADD").arg(held).arg(1).arg(&[0xab_u8; 16]).query::<()>(&mut raw).expect("written");
            let note = format!("7 {} dead", "ab".repeat(16));
            cmd("HSET").arg("tenure_lock_notes:{S}").arg(JAVA).arg(note).query::<()>(&mut raw).expect("written");
            let held = semaphore.note("the note").acquire_many(3).await.expect("acquired when they have run out");
            let owners: Vec<String> = cmd("HKEYS").arg("tenure_lock_notes:{S}").query(&mut raw).expect("asked");
            assert_eq!(owners, [held.owner_id().to_string()]);
            let state = locker.semaphore("S", 0).inspect().await.expect("inspected");
            assert_eq!(state.holders[0].note.as_deref(), Some("the note"));
            assert_eq!((state.holders.len(), state.holders[0].token), (1, Some(held.token())));
            assert_eq!(pttl(&mut raw, "S"), -1, "what Java keeps for ever stays");
            let ours = if options.is_empty() { "tenure_lock_notes:{S}" } else { "tenure_permits:{S}" };
            assert!(pttl(&mut raw, ours) > 0, "what is ours has an end");
            held.release().await.expect("given back");
        });
        assert_eq!(cmd("GET").arg("S").query::<i64>(&mut raw).expect("asked"), 3);
    }
}

pub(crate) fn golden_vector_3_breaking_a_free_lock_publishes_nothing() {
    let server = RedisServer::start();
    let mut listener = server.raw();
    let mut channel = channel_of_l(&mut listener);
    block_on(async {
        let locker = connect(&server.url()).await;
        assert!(locker.mutex("L").break_hold().await.expect("asked").is_none());
        let _held = locker.mutex("L").lock().await.expect("locked");
        assert!(locker.mutex("L").break_hold().await.expect("asked").is_some());
    });
    assert_eq!(channel.get_message().expect("a message").get_payload::<String>().expect("text"), "0");
    assert!(!exists(&mut server.raw(), "L"));
}

pub(crate) fn a_java_hold_is_respected_and_its_release_wakes_us() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    // As an RLock of Redisson with a hold count of two.
    cmd("HSET").arg("L").arg(JAVA).arg(2).query::<()>(&mut raw).expect("written");
    cmd("PEXPIRE").arg("L").arg(60_000).query::<()>(&mut raw).expect("written");
    for options in ["", "?wake=pubsub"] {
        block_on(async {
            let locker = connect(&format!("{}{options}", server.url())).await;
            let state = locker.mutex("L").inspect().await.expect("inspected");
            assert_eq!((&*state.holders[0].owner, state.holders[0].token), (JAVA, None));
            let waiter = tokio::spawn(locker.mutex("L").lock());
            while locker.mutex("L").inspect().await.expect("inspected").waiting != Some(1) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            cmd("DEL").arg("L").query::<()>(&mut raw).expect("deleted");
            cmd("PUBLISH").arg("redisson_lock__channel:{L}").arg(0).query::<()>(&mut raw).expect("published");
            let woken = tokio::time::timeout(Duration::from_secs(20), waiter).await.expect("long before its time to live");
            drop(woken.expect("no panic").expect("locked"));
            locker.close().await.expect("closed");
        });
        cmd("HSET").arg("L").arg(JAVA).arg(1).query::<()>(&mut raw).expect("written");
        cmd("PEXPIRE").arg("L").arg(60_000).query::<()>(&mut raw).expect("written");
    }
}

pub(crate) fn the_plain_layout_is_set_nx_px() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let locker = connect(&format!("{}?layout=plain", server.url())).await;
        let guard = locker.mutex("L").lock().await.expect("locked");
        assert_eq!(cmd("GET").arg("L").query::<String>(&mut raw).expect("a string"), guard.owner_id().to_string());
        let taken: Option<String> =
            cmd("SET").arg("L").arg("redis-py").arg("NX").arg("PX").arg(60_000).query(&mut raw).expect("asked");
        assert_eq!(taken, None);
        guard.release().await.expect("given back");
        let taken: Option<String> =
            cmd("SET").arg("L").arg("redis-py").arg("NX").arg("PX").arg(60_000).query(&mut raw).expect("asked");
        assert!(taken.is_some());
        assert!(locker.mutex("L").try_lock().await.expect("asked").is_none());
        assert_eq!(locker.mutex("L").inspect().await.expect("inspected").holders[0].owner, "redis-py");
        assert!(exists(&mut raw, "tenure_lock_token:{L}"));
    });
}

pub(crate) fn a_foreign_delete_wakes_waiters_of_the_plain_layout() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    cmd("SET").arg("L").arg("redsync").arg("PX").arg(60_000).query::<()>(&mut raw).expect("written");
    block_on(async {
        let locker = connect(&format!("{}?layout=plain&wake=tracking", server.url())).await;
        let waiter = tokio::spawn(locker.mutex("L").lock());
        // The first question has been answered and the next poll is a second away.
        let asked =
            || cmd("INFO").arg("commandstats").query::<String>(&mut server.raw()).is_ok_and(|i| i.contains("cmdstat_eval"));
        eventually("it has asked", asked);
        cmd("DEL").arg("L").query::<()>(&mut raw).expect("deleted");
        // They publish nothing; only the change itself can wake us.
        drop(tokio::time::timeout(Duration::from_secs(20), waiter).await.expect("woken").expect("no panic").expect("locked"));
    });
}

pub(crate) fn an_expiry_wakes_waiters() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    for options in ["", "?wake=pubsub"] {
        cmd("HSET").arg("L").arg(JAVA).arg(1).query::<()>(&mut raw).expect("written");
        cmd("PEXPIRE").arg("L").arg(700).query::<()>(&mut raw).expect("written");
        block_on(async {
            let locker = connect(&format!("{}{options}", server.url())).await;
            let locked = tokio::time::timeout(Duration::from_secs(20), locker.mutex("L").lock()).await;
            locked.expect("when it had expired").expect("locked").release().await.expect("given back");
        });
    }
}

pub(crate) fn tokens_are_exact_beyond_two_to_the_53() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    let last = (1_u64 << 53) + 1;
    block_on(async {
        let locker = connect(&server.url()).await;
        for step in 0..4 {
            cmd("SET").arg("redisson_lock_token:{L}").arg(last + step).query::<()>(&mut raw).expect("written");
            let guard = locker.mutex("L").lock().await.expect("locked");
            assert_eq!(guard.token(), Token::new(last + step + 1));
            guard.release().await.expect("given back");
        }
    });
}

pub(crate) fn used_up_tokens_are_an_error_and_no_lock() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    cmd("SET").arg("redisson_lock_token:{L}").arg(i64::MAX).query::<()>(&mut raw).expect("written");
    cmd("SET").arg("redisson_lock_token:{M}").arg("garbage").query::<()>(&mut raw).expect("written");
    block_on(async {
        let locker = connect(&server.url()).await;
        let error = locker.mutex("L").try_lock().await.expect_err("no token left");
        assert_eq!(error.fault(), Some(tenure::Fault::TokenExhausted), "{error}");
        let error = locker.mutex("M").try_lock().await.expect_err("not a token");
        assert_eq!(error.fault(), Some(tenure::Fault::ForeignFormat), "{error}");
    });
    assert!(!exists(&mut raw, "L") && !exists(&mut raw, "M"));
    assert_eq!(cmd("GET").arg("redisson_lock_token:{M}").query::<String>(&mut raw).expect("kept"), "garbage");
}

pub(crate) fn tokens_grow_past_a_flush() {
    let server = RedisServer::start();
    block_on(async {
        let locker = connect(&server.url()).await;
        let before = locker.mutex("L").lock().await.expect("locked");
        cmd("FLUSHALL").query::<()>(&mut server.raw()).expect("flushed");
        let lost = tokio::time::timeout(Duration::from_secs(30), before.lost()).await.expect("told by the next renewal");
        assert_eq!(lost.reason, tenure::LostReason::Revoked);
        assert!(locker.mutex("L").lock().await.expect("locked").token() > before.token());
    });
}

pub(crate) fn tokens_expire_after_an_idle_time_or_never() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let week = connect(&server.url()).await;
        drop(week.mutex("L").lock().await.expect("locked"));
        let left = pttl(&mut raw, "redisson_lock_token:{L}");
        assert!((604_700_000..=604_800_000).contains(&left), "{left}");
        let never = connect(&format!("{}?token_ttl=never", server.url())).await;
        drop(never.mutex("M").lock().await.expect("locked"));
        assert_eq!(pttl(&mut raw, "redisson_lock_token:{M}"), -1);
    });
}

pub(crate) fn the_clients_record_goes_with_it() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let locker = connect(&server.url()).await;
        let guard = locker.mutex("L").lock().await.expect("locked");
        let record = format!("tenure_client:{}", locker.client_id());
        let about: String = cmd("GET").arg(&record).query(&mut raw).expect("there");
        assert!(about.contains(&std::process::id().to_string()), "{about}");
        assert!(pttl(&mut raw, &record) > 0);
        drop(guard);
        locker.close().await.expect("closed");
        assert!(!exists(&mut raw, &record) && !exists(&mut raw, "L"));
    });
}

pub(crate) fn permits_of_which_one_was_taken_for_lapsed_are_gone_as_a_whole() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    for which in [0, 1] {
        cmd("FLUSHALL").query::<()>(&mut raw).expect("emptied");
        block_on(one_of_two_was_taken(&server, &mut raw, which));
    }
}

async fn one_of_two_was_taken(server: &RedisServer, raw: &mut Connection, which: usize) {
    let locker = connect(&format!("{}?lease=3s", server.url())).await;
    let permits = locker.semaphore("S", 3).acquire_many(2).await.expect("acquired");
    // One of Java's, whose clock is ahead, sweeps one of the two and puts it back; whichever it is.
    let ids: Vec<Vec<u8>> = cmd("ZRANGE").arg("{S}:timeout").arg(0).arg(-1).query(raw).expect("asked");
    let swept: u32 = cmd("ZREM").arg("{S}:timeout").arg(&ids[which]).query(raw).expect("asked");
    cmd("INCRBY").arg("S").arg(swept).query::<()>(raw).expect("written");
    assert_eq!(permits.lost().await.reason, tenure::LostReason::Revoked);
    drop(permits);
    let all = locker.semaphore("S", 3).acquire_many(3);
    let all = must("all come back, when the last one's time is over at the latest", all).await.expect("acquired");
    let state = locker.semaphore("S", 3).inspect().await.expect("inspected");
    assert_eq!(state.permits.map(|p| (p.of, p.free)), Some((3, 0)), "and not one more");
    all.release().await.expect("given back");
}

pub(crate) fn a_short_wait_to_write_does_not_end_the_mark_of_a_long_one() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let locker = connect(&server.url()).await;
        let _reader = locker.rwlock("L").read().await.expect("read");
        let _long = tokio::spawn(locker.rwlock("L").lease(Duration::from_secs(30)).write());
        eventually("marked", || exists(&mut raw, "tenure_rwlock_writers:{L}"));
        let other = connect(&server.url()).await;
        let short = other.rwlock("L").lease(Duration::from_secs(1)).try_write_for(Duration::from_millis(100)).await;
        assert!(short.expect("asked").is_none());
        assert!(pttl(&mut raw, "tenure_rwlock_writers:{L}") > 10_000);
    });
}

pub(crate) fn dead_readers_do_not_pile_up_among_many() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let locker = connect(&server.url()).await;
        let mut alive = Vec::new();
        for _ in 0..70 {
            alive.push(locker.rwlock("L").read().await.expect("read"));
        }
        for dead in 0..40 {
            let field = format!("11111111-1111-1111-1111-111111111111:{dead}");
            cmd("HSET").arg("L").arg(field).arg(1).query::<()>(&mut raw).expect("written");
        }
        alive.pop().expect("one").release().await.expect("given back");
        assert_eq!(cmd("HLEN").arg("L").query::<usize>(&mut raw).expect("asked"), 1 + 69);
    });
}

pub(crate) fn a_line_with_other_members_than_its_deadlines_repairs_itself() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    cmd("RPUSH").arg("redisson_lock_queue:{L}").arg(JAVA).query::<()>(&mut raw).expect("written");
    cmd("ZADD").arg("redisson_lock_timeout:{L}").arg(1).arg("somebody else").query::<()>(&mut raw).expect("written");
    block_on(async {
        let locker = connect(&server.url()).await;
        assert!(locker.mutex("L").fair().try_lock().await.expect("no error").is_none(), "it may be alive");
        let waiting = tokio::spawn(locker.mutex("L").fair().lock());
        eventually("the head has a deadline now", || {
            cmd("ZSCORE").arg("redisson_lock_timeout:{L}").arg(JAVA).query::<Option<f64>>(&mut raw).expect("asked").is_some()
        });
        cmd("ZADD").arg("redisson_lock_timeout:{L}").arg(1).arg(JAVA).query::<()>(&mut raw).expect("written");
        must("its time is over", waiting).await.expect("no panic").expect("locked").release().await.expect("given back");
    });
}
