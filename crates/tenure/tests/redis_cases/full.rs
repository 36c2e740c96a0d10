//! Full servers and refused renewals: what they cost holders.

use std::time::Duration;

use redis::{Connection, cmd};
use tenure::{Guard, Locker};

use tenure_testkit::RedisServer;
use tenure_testkit::locker::{block_on, connect, must};

/// Waits until so many more renewals have been confirmed.
async fn renewed_again(locker: &Locker, times: u64) {
    let enough = locker.stats().renewed + times;
    must("renewals", async {
        while locker.stats().renewed < enough {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

/// A hold of every kind.
async fn all_kinds(locker: &Locker) -> Vec<Guard> {
    vec![
        locker.mutex("mutex").lock().await.expect("locked"),
        locker.mutex("noted").note("a note").lock().await.expect("locked"),
        locker.mutex("fair").fair().lock().await.expect("locked"),
        locker.rwlock("read").read().await.expect("read"),
        locker.rwlock("write").write().await.expect("written"),
        locker.semaphore("permit", 3).acquire().await.expect("acquired"),
        locker.semaphore("permits", 3).acquire_many(2).await.expect("acquired"),
    ]
}

fn fill(raw: &mut Connection) {
    cmd("CONFIG").arg("SET").arg("maxmemory").arg(1).query::<()>(raw).expect("full");
}

pub(crate) fn holders_of_every_kind_renew_and_release_on_a_full_server() {
    for options in ["", "&semaphore=counter"] {
        let server = RedisServer::start();
        let mut raw = server.raw();
        block_on(async {
            let locker = connect(&format!("{}?lease=2s{options}", server.url())).await;
            let guards = all_kinds(&locker).await;
            fill(&mut raw);
            renewed_again(&locker, 4 * guards.len() as u64).await;
            let stats = locker.stats();
            assert_eq!((stats.renewal_failures, stats.lost), (0, 0), "{options}");
            for guard in guards {
                let name = guard.resource().clone();
                assert!(guard.is_valid(), "{name:?}");
                guard.release().await.unwrap_or_else(|e| panic!("{name:?}: {e}"));
            }
            for name in ["mutex", "noted", "fair", "read", "write"] {
                assert!(!cmd("EXISTS").arg(name).query::<bool>(&mut raw).expect("asked"), "{name} is free");
            }
            for name in ["permit", "permits"] {
                assert_eq!(cmd("GET").arg(name).query::<u32>(&mut raw).expect("asked"), 3, "{name}: all came back");
            }
        });
    }
}

pub(crate) fn a_renewal_that_is_refused_costs_no_other_hold() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    let mut user = |rules: &[&str]| cmd("ACL").arg("SETUSER").arg("u").arg(rules).query::<()>(&mut raw).expect("a user");
    user(&["on", ">p", "~*", "&*", "+@all"]);
    block_on(async {
        let locker = connect(&format!("redis://u:p@127.0.0.1:{}?lease=2s", server.port)).await;
        let mut guards = all_kinds(&locker).await;
        // Of all that renews, only permits need this: one kind is refused.
        user(&["-zadd"]);
        let (refused, others): (Vec<_>, Vec<_>) = guards.into_iter().partition(|g| g.resource().as_str().starts_with("permit"));
        for guard in &refused {
            must("the end of a permit", guard.lost()).await;
        }
        renewed_again(&locker, 4 * others.len() as u64).await;
        assert_eq!(locker.stats().lost, 2);
        guards = others;
        // One of several that go in one question is refused, and the whole question with it.
        user(&["+zadd", "resetkeys", "~mutex", "~fair", "~read", "~write", "~*{*", "~tenure_client:*"]);
        let noted = guards.remove(1);
        must("the end of one", noted.lost()).await;
        renewed_again(&locker, 4 * guards.len() as u64).await;
        assert_eq!(locker.stats().lost, 3);
        for guard in guards {
            let name = guard.resource().clone();
            guard.release().await.unwrap_or_else(|e| panic!("{name:?}: {e}"));
        }
    });
}
