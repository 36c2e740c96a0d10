//! Whose turn it is when readers and writers wait: what is kept of it beside Redisson's keys.

use std::time::Duration;

use redis::{Connection, cmd};

use tenure_testkit::locker::{block_on, connect, must};
use tenure_testkit::{RedisServer, eventually};

const WRITERS: &str = "tenure_rwlock_writers:{L}";
const GONE: &str = "11111111-1111-1111-1111-111111111111:1";

fn score(raw: &mut Connection, member: &str) -> Option<f64> {
    cmd("ZSCORE").arg(WRITERS).arg(member).query(raw).expect("asked")
}

/// Leaves the mark of a writer that will not come.
fn mark(raw: &mut Connection) -> f64 {
    let (seconds, _): (f64, f64) = cmd("TIME").query(raw).expect("asked");
    cmd("ZADD").arg(WRITERS).arg((seconds + 30.0) * 1000.0).arg(GONE).query::<()>(raw).expect("written");
    cmd("PEXPIRE").arg(WRITERS).arg(60_000).query::<()>(raw).expect("written");
    seconds * 1000.0
}

pub(crate) fn whose_turn_it_is_goes_with_the_last_writer_in_the_queue() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
        let reader = one.rwlock("L").read().await.expect("read");
        let waiting = tokio::spawn(other.rwlock("L").try_write_for(Duration::from_millis(200)));
        eventually("it is the writer's", || score(&mut raw, "turn") == Some(-1.0));
        assert!(waiting.await.expect("no panic").expect("asked").is_none());
        eventually("given up", || !cmd("EXISTS").arg(WRITERS).query::<bool>(&mut raw).expect("asked"));

        let waiting = tokio::spawn(other.rwlock("L").write());
        eventually("it is the writer's", || score(&mut raw, "turn") == Some(-1.0));
        reader.release().await.expect("given back");
        let writer = must("its turn", waiting).await.expect("no panic").expect("written");
        assert!(!cmd("EXISTS").arg(WRITERS).query::<bool>(&mut raw).expect("asked"));
        writer.release().await.expect("given back");
    });
}

pub(crate) fn a_mark_of_a_version_before_is_heeded_after_one_reader() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let locker = connect(&server.url()).await;
        mark(&mut raw);
        let reader = locker.rwlock("L").try_read().await.expect("asked").expect("nothing says whose turn it is");
        assert_eq!(score(&mut raw, "turn"), Some(-1.0));
        reader.release().await.expect("given back");
        assert!(locker.rwlock("L").try_read().await.expect("asked").is_none());
        assert!(score(&mut raw, "turn").is_some_and(|until| until < -1.0), "it has begun");
    });
}

pub(crate) fn a_clock_that_is_set_back_costs_readers_one_grace() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let locker = connect(&server.url()).await;
        let now = mark(&mut raw);
        cmd("ZADD").arg(WRITERS).arg(-(now + 3_600_000.0)).arg("turn").query::<()>(&mut raw).expect("written");
        let read = locker.rwlock("L").try_read_for(Duration::from_secs(20)).await.expect("asked");
        assert!(read.is_some(), "the queue position would have ended later");
    });
}
