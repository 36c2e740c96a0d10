//! The libraries that lock with `SET NX PX`: redis-py, redsync, node-redlock.

use super::place::listeners;
use tenure_testkit::locker::{block_on, connect, must};
use tenure_testkit::peer::{Language, Peer};
use tenure_testkit::{RedisServer, eventually};

pub(crate) type Case = (&'static str, fn(Language));

pub(crate) const CASES: [Case; 2] = [
    ("we_wait_until_they_give_back", we_wait_until_they_give_back),
    ("they_are_refused_until_we_give_back", they_are_refused_until_we_give_back),
];

const OPTIONS: &str = "?layout=plain&lease=10m";

fn start(language: Language) -> (RedisServer, Peer) {
    let server = RedisServer::start();
    let peer = Peer::start(language, &["--single", &format!("127.0.0.1:{}", server.port)]);
    (server, peer)
}

/// They publish nothing: we see for ourselves that the key has gone.
fn we_wait_until_they_give_back(language: Language) {
    let (server, peer) = start(language);
    let they = peer.actor();
    for wake in ["tracking", "pubsub"] {
        block_on(async {
            let locker = connect(&format!("{}{OPTIONS}&wake={wake}", server.url())).await;
            they.ask("take L 600000");
            assert!(locker.mutex("L").try_lock().await.expect("asked").is_none(), "they hold it");
            let waiter = tokio::spawn(locker.mutex("L").lock());
            eventually("we wait", || listeners(&server, "L") == 1);
            assert!(!waiter.is_finished(), "they hold it");
            they.ask("give L");
            let guard = must("woken by the release", waiter).await.expect("no panic").expect("locked");
            assert_eq!(they.ask("try L 600000"), "refused");
            guard.release().await.expect("given back");
            locker.close().await.expect("closed");
        });
    }
}

fn they_are_refused_until_we_give_back(language: Language) {
    let (server, peer) = start(language);
    let (they, others) = (peer.actor(), peer.actor());
    block_on(async {
        let locker = connect(&format!("{}{OPTIONS}", server.url())).await;
        let guard = locker.mutex("L").lock().await.expect("locked");
        they.tell("take L 600000");
        // Asked while the first of them waits.
        assert_eq!(others.ask("try L 600000"), "refused");
        assert!(!they.has_answered(), "we hold it");
        guard.release().await.expect("given back");
        they.answer();
        assert!(locker.mutex("L").try_lock().await.expect("asked").is_none(), "they hold it");
        they.ask("give L");
        assert_eq!(others.ask("try L 600000"), "taken");
        others.ask("give L");
        locker.mutex("L").try_lock().await.expect("asked").expect("free").release().await.expect("given back");
    });
}
