//! The connection that the caller's own runtime drives: made for a caller that is alone and comes often, and given up with its runtime.

use std::time::{Duration, Instant};

use redis::{Connection, cmd};
use tenure::Locker;
use tokio::runtime::{Builder, Runtime};

use tenure_testkit::locker::{block_on, connect};
use tenure_testkit::{RedisServer, bare, eventually};

/// Connections to the server, but for the one that asks.
fn connections(raw: &mut Connection) -> usize {
    let list: String = cmd("CLIENT").arg("LIST").query(raw).expect("asked");
    list.lines().filter(|line| !line.contains("cmd=client")).count()
}

async fn cycle(locker: &Locker) {
    locker.mutex("a").lock().await.expect("locked").release().await.expect("given back");
}

/// Locks until there is a second connection.
async fn until_near(locker: &Locker, raw: &mut Connection) {
    let began = Instant::now();
    while connections(raw) < 2 {
        assert!(began.elapsed() < Duration::from_secs(20), "never came true: a near connection");
        for _ in 0..50 {
            cycle(locker).await;
        }
    }
}

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

pub(crate) fn a_lone_caller_gets_a_connection_of_its_own_runtime_which_ends_when_it_is_idle() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    let runtime = one_thread();
    let locker = runtime.block_on(connect(&server.url()));
    runtime.block_on(cycle(&locker));
    assert_eq!(connections(&mut raw), 1, "one lock is not worth it");
    runtime.block_on(until_near(&locker, &mut raw));
    // The background looks after it: the runtime need not run for that.
    eventually("it is given up when it is not used", || connections(&mut raw) == 1);
    runtime.block_on(async {
        cycle(&locker).await;
        locker.close().await.expect("closed");
    });
}

pub(crate) fn a_runtime_that_has_ended_or_stands_still_costs_no_lock_and_no_call() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    let runtime = one_thread();
    let locker = runtime.block_on(connect(&server.url()));
    runtime.block_on(until_near(&locker, &mut raw));
    {
        // It has the context of a runtime that nobody runs.
        let _entered = runtime.enter();
        bare::block_on(cycle(&locker));
    }
    runtime.block_on(until_near(&locker, &mut raw));
    let held = runtime.block_on(locker.mutex("held").lease(Duration::from_secs(2)).lock()).expect("locked");
    drop(runtime);
    block_on(async {
        cycle(&locker).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        held.check().expect("renewed all the time");
        held.release().await.expect("given back");
        locker.close().await.expect("closed");
    });
}

pub(crate) fn a_runtime_without_connections_of_its_own_will_do() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    let locker = block_on(connect(&server.url()));
    runtime.block_on(async {
        for _ in 0..200 {
            cycle(&locker).await;
        }
    });
    assert_eq!(connections(&mut raw), 1);
}

pub(crate) fn a_near_connection_that_is_killed_costs_no_lock() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    let runtime = one_thread();
    runtime.block_on(async {
        let locker = connect(&server.url()).await;
        until_near(&locker, &mut raw).await;
        let guard = locker.mutex("b").lock().await.expect("locked");
        cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").query::<()>(&mut raw).expect("killed");
        for _ in 0..100 {
            cycle(&locker).await;
        }
        guard.check().expect("held");
        guard.release().await.expect("given back");
        locker.close().await.expect("closed");
    });
}
