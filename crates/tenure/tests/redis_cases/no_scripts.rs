//! The plain layout without scripts, on servers with commands that compare before they write. The whole suite runs there too
//! (`conformance`: `redis_plain_commands`).

use std::time::Duration;

use redis::cmd;

use super::cost::{calls, reset};
use tenure_testkit::RedisServer;
use tenure_testkit::acl::{PASSWORD, documented_user, without_scripts};
use tenure_testkit::locker::{block_on, connect, must};

pub(crate) fn a_plain_lock_is_given_back_without_a_script_where_the_server_can() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    let Some(delete) = tenure_testkit::server::compares_and_deletes(&mut raw) else { return };
    block_on(async {
        let locker = connect(&format!("{}?layout=plain", server.url())).await;
        locker.mutex("warm").lock().await.expect("locked").release().await.expect("given back");
        for note in [false, true] {
            let mutex = if note { locker.mutex("L").note("why") } else { locker.mutex("L") };
            let guard = mutex.lock().await.expect("locked");
            reset(&mut raw);
            guard.release().await.expect("given back");
            let counted = calls(&mut raw);
            assert_eq!(counted.get("evalsha"), None, "{counted:?}");
            assert_eq!(counted[delete], 1 + u64::from(note), "{counted:?}");
            assert_eq!(cmd("EXISTS").arg("L").arg("tenure_lock_note:{L}").query::<u64>(&mut raw).expect("asked"), 0);
        }
        // Another one's stays, and so does its note.
        let lost = locker.mutex("L").note("mine").lock().await.expect("locked");
        cmd("SET").arg("L").arg("another").arg("PX").arg(60_000).query::<()>(&mut raw).expect("set");
        assert!(matches!(lost.release().await, Err(tenure::Error::Lost(_))));
        assert_eq!(cmd("GET").arg("L").query::<String>(&mut raw).expect("asked"), "another");
    });
}

pub(crate) fn a_user_who_may_call_no_script_has_plain_locks_where_the_server_can() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    documented_user("tenure-plain", &mut raw);
    let url = format!("redis://tenure-plain:{PASSWORD}@127.0.0.1:{}?prefix=app:&layout=plain&lease=1s", server.port);
    let can = without_scripts("tenure-plain", &mut raw);
    block_on(async {
        let (one, other) = (connect(&url).await, connect(&url).await);
        if !can {
            // It says which right is missing, and takes nothing.
            let refused = one.mutex("L").lock().await.expect_err("refused");
            assert!(refused.to_string().contains("eval"), "{refused}");
            assert_eq!(cmd("EXISTS").arg("app:L").query::<u64>(&mut raw).expect("asked"), 0);
            return;
        }
        let guard = one.mutex("L").note("why").lock().await.expect("locked");
        let waiting = tokio::spawn(other.mutex("L").lock());
        // Through several leases.
        for _ in 0..25 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            guard.check().expect("held");
        }
        assert!(!waiting.is_finished());
        assert!(other.mutex("L").try_lock().await.expect("asked").is_none());
        let seen = other.mutex("L").inspect().await.expect("asked");
        assert_eq!((seen.holders[0].token, seen.holders[0].note.as_deref()), (Some(guard.token()), Some("why")));
        let token = guard.token();
        guard.release().await.expect("given back");
        let next = must("woken", waiting).await.expect("no panic").expect("locked");
        assert!(next.token() > token);
        assert_eq!(calls(&mut raw).get("evalsha").copied().unwrap_or(0), 0, "nothing went by a script");
        // Tokens are those of clients that use scripts.
        next.release().await.expect("given back");
        let by_script = connect(&format!("{}?layout=plain&prefix=app:", server.url())).await;
        let third = by_script.mutex("L").lock().await.expect("locked");
        assert!(third.token().get() > token.get() + 1);
        let broken = one.mutex("L").break_hold().await.expect("asked").expect("broken");
        assert!(broken.fence > third.token());
        assert!(one.mutex("L").lock().await.expect("locked").token() > broken.fence);
    });
}
