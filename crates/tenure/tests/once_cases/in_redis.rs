//! What is particular to records in Redis.

use std::sync::Arc;
use std::time::Duration;

use redis::Commands;
use tenure::once::{Error, Ledger, RedisRecords};
use tenure::{Error as Refused, Fault, Locker};

use tenure_testkit::RedisServer;
use tenure_testkit::locker::{block_on, connect};

async fn ledger(server: &RedisServer, locker: &Locker) -> Ledger {
    let client = redis::Client::open(server.url()).expect("a URL");
    let records = RedisRecords::new(client.get_multiplexed_async_connection().await.expect("connected"));
    Ledger::new(locker, Arc::new(records.prefix("app:")))
}

/// How many scripts the server has run.
fn scripts(server: &RedisServer) -> u64 {
    let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut server.raw()).expect("asked");
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")).unwrap_or("0");
    line.split(',').next().and_then(|n| n.parse().ok()).expect("a number")
}

pub(crate) fn a_run_costs_two_commands_and_a_replay_one() {
    block_on(async {
        let server = RedisServer::start();
        let ledger = ledger(&server, &connect("memory:").await).await;
        // The server learns the scripts.
        ledger.once("warm").run(async { Ok::<_, String>(1) }).await.expect("done");
        for cost in [2, 1, 1] {
            let before = scripts(&server);
            ledger.once("k").run(async { Ok::<_, String>(1) }).await.expect("done");
            assert_eq!(scripts(&server) - before, cost);
        }
        let mut raw = server.raw();
        assert!(raw.exists::<_, bool>("app:tenure:once:k").expect("asked"));
        // Seven days, for the mark of what failed too.
        ledger.once("failed").run(async { Err::<u32, _>(String::new()) }).await.expect_err("failed");
        for key in ["k", "failed"] {
            let left = Duration::from_millis(raw.pttl::<_, i64>(format!("app:tenure:once:{key}")).expect("asked").unsigned_abs());
            let week = Duration::from_secs(7 * 86400);
            assert!(left <= week && left > week - Duration::from_secs(600), "{left:?}");
        }
    });
}

pub(crate) fn a_key_that_is_something_else_is_a_typed_error() {
    block_on(async {
        let server = RedisServer::start();
        let ledger = ledger(&server, &connect("memory:").await).await;
        server.raw().set::<_, _, ()>("app:tenure:once:k", "a text").expect("set");
        let e = ledger.once("k").run(async { Ok::<_, String>(1) }).await.expect_err("not a record");
        assert!(matches!(&e, Error::NotBegun { cause: Refused::Backend { fault: Fault::WrongType, .. }, .. }), "{e}");
    });
}

pub(crate) fn a_script_that_the_server_lost_is_sent_again() {
    block_on(async {
        let server = RedisServer::start();
        let ledger = ledger(&server, &connect("memory:").await).await;
        for key in ["a", "b"] {
            let done = ledger.once(key).run(async {
                redis::cmd("SCRIPT").arg("FLUSH").query::<()>(&mut server.raw()).expect("flushed");
                Ok::<_, String>(1)
            });
            assert!(!done.await.expect("done").replayed);
        }
    });
}
