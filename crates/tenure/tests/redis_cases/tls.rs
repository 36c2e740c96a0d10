//! `rediss:` is verified, always, and never falls back to plain text.

use redis::cmd;
use tenure::{Fault, Locker};

use super::layout::{block_on, connect};
use crate::support::tls::{certificates, tls_server};
use crate::support::{RedisServer, eventually};

pub(crate) fn tls_is_verified() {
    let dir = tempfile::tempdir().expect("a directory");
    certificates(dir.path(), "IP:127.0.0.1");
    let server = tls_server(dir.path());
    let ca = dir.path().join("ca.crt");
    block_on(async {
        let good = connect(&format!("rediss://127.0.0.1:{}?ca={}", server.port, ca.display())).await;
        let guard = good.mutex("L").lock().await.expect("locked");
        let other = connect(&format!("rediss://127.0.0.1:{}?ca={}&layout=redisson", server.port, ca.display())).await;
        assert!(other.mutex("L").try_lock().await.expect("asked").is_none());
        let waiter = tokio::spawn(other.mutex("L").lock());
        guard.release().await.expect("given back");
        drop(waiter.await.expect("no panic").expect("woken over TLS"));

        let unknown_ca = Locker::connect(&format!("rediss://127.0.0.1:{}", server.port)).await.expect_err("an unknown authority");
        assert_eq!((unknown_ca.fault(), unknown_ca.is_transient()), (Some(Fault::Tls), false), "{unknown_ca}");
    });
    let elsewhere = tempfile::tempdir().expect("a directory");
    certificates(elsewhere.path(), "DNS:elsewhere.example");
    let server = tls_server(elsewhere.path());
    let ca = elsewhere.path().join("ca.crt");
    block_on(async {
        let url = format!("rediss://127.0.0.1:{}?ca={}", server.port, ca.display());
        let wrong_host = Locker::connect(&url).await.expect_err("another host's certificate");
        assert_eq!((wrong_host.fault(), wrong_host.is_transient()), (Some(Fault::Tls), false), "{wrong_host}");
        let missing = Locker::connect("rediss://127.0.0.1?ca=/no/such/file").await.expect_err("no such file");
        assert!(missing.to_string().contains("/no/such/file"), "{missing}");
    });
}

pub(crate) fn tls_never_falls_back() {
    let dir = tempfile::tempdir().expect("a directory");
    certificates(dir.path(), "IP:127.0.0.1");
    let (plain, tls) = (RedisServer::start(), tls_server(dir.path()));
    let ca = dir.path().join("ca.crt");
    block_on(async {
        let url = format!("rediss://127.0.0.1:{}?ca={}&timeout=2s", plain.port, ca.display());
        Locker::connect(&url).await.expect_err("a server without TLS");
        Locker::connect(&format!("redis://127.0.0.1:{}?timeout=2s", tls.port)).await.expect_err("a server with TLS only");
    });
}

pub(crate) fn a_tls_server_that_is_killed_is_unavailable() {
    let dir = tempfile::tempdir().expect("a directory");
    certificates(dir.path(), "IP:127.0.0.1");
    let mut server = tls_server(dir.path());
    let ca = dir.path().join("ca.crt");
    block_on(async {
        let locker = connect(&format!("rediss://127.0.0.1:{}?ca={}", server.port, ca.display())).await;
        let guard = locker.mutex("L").lock().await.expect("locked");
        // The server has read the question when it ends without TLS's farewell.
        let mut raw = server.raw();
        cmd("CLIENT").arg("PAUSE").arg(60_000).arg("WRITE").query::<()>(&mut raw).expect("paused");
        let asked = tokio::spawn(locker.mutex("M").try_lock());
        let blocked = || cmd("INFO").arg("clients").query::<String>(&mut raw).is_ok_and(|i| i.contains("blocked_clients:1"));
        eventually("it has asked", blocked);
        server.kill();
        let error = asked.await.expect("no panic").expect_err("nobody there");
        assert!(error.is_transient(), "{error}");
        drop(guard);
    });
}
