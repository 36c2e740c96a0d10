//! `rediss:` is verified, always, and never falls back to plain text.

use redis::cmd;
use tenure::{Error, Fault, Locker};

use tenure_testkit::locker::{block_on, connect};
use tenure_testkit::tls::{certificates, mutual_tls_server, tls_server};
use tenure_testkit::{RedisServer, eventually};

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
        // Without the file's name, which may be part of a password.
        assert!(missing.to_string().contains("option \"ca\"") && !missing.to_string().contains("such/file"), "{missing}");
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

pub(crate) fn a_server_that_asks_who_we_are_is_told() {
    let (dir, strange) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    certificates(dir.path(), "IP:127.0.0.1");
    certificates(strange.path(), "IP:127.0.0.1");
    let server = mutual_tls_server(dir.path());
    let file = |name: &str| dir.path().join(name).display().to_string();
    let url = format!("rediss://127.0.0.1:{}?timeout=5s&ca={}", server.port, file("ca.crt"));
    let own = format!("cert={}&key={}", file("client.crt"), file("client.key"));
    let strange = |name: &str| strange.path().join(name).display().to_string();
    block_on(async {
        let locker = connect(&format!("{url}&{own}")).await;
        locker.mutex("L").lock().await.expect("locked").release().await.expect("given back");
        let unknown = format!("cert={}&key={}", strange("client.crt"), strange("client.key"));
        for url in [url.clone(), format!("{url}&{unknown}")] {
            let refused = Locker::connect(&url).await.expect_err("a stranger");
            assert_eq!((refused.fault(), refused.is_transient()), (Some(Fault::Tls), false), "{refused}");
        }
        for (options, word) in [
            (format!("cert={}", file("client.crt")), "both, or none"),
            (format!("key={}", file("client.key")), "both, or none"),
            (format!("cert={}&key=/no/such/file", file("client.crt")), "option \"key\""),
            (format!("cert={0}&key={0}", file("client.crt")), "PEM"),
        ] {
            let error = Locker::connect(&format!("{url}&{options}")).await.expect_err(&options);
            assert!(matches!(error, Error::Config { .. }) && error.to_string().contains(word), "{options}: {error}");
        }
    });
}
