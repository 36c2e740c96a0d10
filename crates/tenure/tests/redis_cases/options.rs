//! Options that are set in code.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use redis::cmd;
use tenure::options::{Credentials, Layout, RedisOptions, Wake, rustls};
use tenure::{Error, Fault, Locker};

use tenure_testkit::RedisServer;
use tenure_testkit::locker::{block_on, connect, must};
use tenure_testkit::tls::{certificates, mutual_tls_server};

fn of(server: &RedisServer) -> RedisOptions {
    RedisOptions::server("127.0.0.1", server.port)
}

pub(crate) fn options_in_code_name_the_same_lock_as_a_url() {
    let server = RedisServer::start();
    block_on(async {
        let options = of(&server).database(2).layout(Layout::Plain).wake(Wake::PubSub).token_ttl(None);
        let coded = Locker::builder().prefix("p:").connect_with(options).await.expect("connected");
        let by_url = connect(&format!("redis://127.0.0.1:{}/2?layout=plain&prefix=p:", server.port)).await;
        let guard = coded.mutex("L").lock().await.expect("locked");
        assert!(by_url.mutex("L").try_lock().await.expect("asked").is_none());
        guard.release().await.expect("given back");
        let _guard = by_url.mutex("L").try_lock().await.expect("asked").expect("free");
        let elsewhere = Locker::builder().connect_with(of(&server)).await.expect("connected");
        assert!(elsewhere.mutex("p:L").try_lock().await.expect("another database").is_some());
        let socket = RedisOptions::socket(server.path("socket")).database(2).layout(Layout::Plain);
        let over_socket = Locker::builder().connect_with(socket).await.expect("connected");
        assert!(over_socket.mutex("p:L").inspect().await.is_ok_and(|state| state.holders.len() == 1));
    });
}

pub(crate) fn options_that_do_not_go_together_are_refused_before_any_connection() {
    let server = || RedisOptions::server("127.0.0.1", 1);
    let nobody: [(&str, u16); 0] = [];
    let cases = [
        (RedisOptions::cluster(nobody), "are none"),
        (RedisOptions::server("", 1), "a name that is none"),
        (RedisOptions::server("user:canary@host", 1), "a name that is none"),
        (server().sentinel_credentials(Credentials::new(None, "p")), "login for sentinels"),
        (server().token_ttl(std::time::Duration::ZERO), "24h or more"),
        (server().token_ttl(std::time::Duration::MAX), "more than a server counts"),
        (RedisOptions::cluster([("a", 1)]).database(1), "database of a cluster"),
        (server().sharded_channels(true), "a cluster's"),
        (RedisOptions::socket("relative"), "absolute"),
        (RedisOptions::socket("/s").tls(), "unix socket"),
        (server().token_ttl(std::time::Duration::from_secs(1)), "24h or more"),
        (server().sync(0), "a number of replicas"),
        (server().sync_timeout(std::time::Duration::from_millis(1)), "of no use alone"),
    ];
    block_on(async {
        for (options, word) in cases {
            let error = Locker::builder().connect_with(options).await.expect_err(word);
            assert!(matches!(error, Error::Config(_)) && error.to_string().contains(word), "{error}");
        }
    });
}

pub(crate) fn credentials_are_asked_for_each_new_connection() {
    let server = RedisServer::with(&["--requirepass", "first"]);
    let mut raw =
        redis::Client::open(format!("redis://:first@127.0.0.1:{}", server.port)).expect("a URL").get_connection().expect("in");
    let (password, asked) = (Arc::new(Mutex::new("first".to_owned())), Arc::new(AtomicUsize::new(0)));
    let (current, count) = (Arc::clone(&password), Arc::clone(&asked));
    let options = of(&server).credentials_from(move || {
        count.fetch_add(1, Ordering::Relaxed);
        let password = current.lock().expect("not poisoned").clone();
        async move { Ok::<_, std::io::Error>(Credentials::new(None, password)) }
    });
    assert!(!format!("{options:?}").contains("first"));
    block_on(async {
        let locker = Locker::builder().connect_with(options).await.expect("connected");
        let guard = locker.mutex("L").lock().await.expect("locked");
        let before = asked.load(Ordering::Relaxed);
        cmd("CONFIG").arg("SET").arg("requirepass").arg("second").query::<()>(&mut raw).expect("set");
        "second".clone_into(&mut password.lock().expect("not poisoned"));
        cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").arg("SKIPME").arg("yes").query::<()>(&mut raw).expect("killed");
        let other = must("a lock over a new connection", locker.mutex("M").lock()).await.expect("locked");
        assert!(asked.load(Ordering::Relaxed) > before);
        guard.check().expect("still held");
        drop((guard, other));
    });
}

pub(crate) fn credentials_that_cannot_be_had_are_an_outage_that_says_so() {
    let server = RedisServer::start();
    block_on(async {
        let broken = || -> std::future::Ready<std::io::Result<Credentials>> { panic!("of the program") };
        let refused = |options, word: &'static str| async move {
            let error = Locker::builder().connect_with(options).await.expect_err(word);
            assert!(error.is_transient() && error.fault() == Some(Fault::Auth), "{error}");
            assert!(error.to_string().contains(word), "{error}");
        };
        // Whatever it speaks of: it is not our connection.
        let vault = || async { Err(std::io::Error::other("the vault's TLS certificate is none")) };
        refused(of(&server).credentials_from(vault), "the vault's TLS certificate").await;
        refused(of(&server).credentials_from(broken), "it panicked").await;
        // The next ones may be better.
        let old = || async { Ok::<_, std::io::Error>(Credentials::new(Some("nobody"), "old")) };
        refused(of(&server).credentials_from(old), "").await;
        let wrong = of(&server).credentials(Credentials::new(Some("nobody"), "canary"));
        let error = Locker::builder().connect_with(wrong).await.expect_err("no such user");
        assert_eq!(error.fault(), Some(Fault::Auth), "{error}");
        assert!(!format!("{error} {error:?}").contains("canary"));
    });
}

pub(crate) fn a_tls_configuration_of_the_users_own_is_used() {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let dir = tempfile::tempdir().expect("a directory");
    certificates(dir.path(), "IP:127.0.0.1");
    let server = mutual_tls_server(dir.path());
    let read = |name: &str| std::fs::read(dir.path().join(name)).expect("a file");
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&read("ca.crt")).expect("PEM")).expect("an authority");
    let builder = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    let certificate = CertificateDer::from_pem_slice(&read("client.crt")).expect("PEM");
    let key = PrivateKeyDer::from_pem_slice(&read("client.key")).expect("PEM");
    let config = builder.with_client_auth_cert(vec![certificate], key).expect("a client's certificate");
    block_on(async {
        let locker = Locker::builder().connect_with(of(&server).tls_config(Arc::new(config))).await.expect("connected");
        locker.mutex("L").lock().await.expect("locked").release().await.expect("given back");
        // The system knows nothing of the test's own authority.
        let error = Locker::builder().connect_with(of(&server).tls()).await.expect_err("a stranger");
        assert!(error.fault() == Some(Fault::Tls) || matches!(error, Error::Config(_)), "{error}");
    });
}

pub(crate) fn a_server_that_is_away_costs_no_question_for_credentials() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let options = RedisOptions::server("127.0.0.1", 1).credentials_from(move || {
        count.fetch_add(1, Ordering::Relaxed);
        async { Ok::<_, std::io::Error>(Credentials::new(None, "p")) }
    });
    let error = block_on(Locker::builder().connect_with(options)).expect_err("nobody there");
    assert_eq!((error.fault(), asked.load(Ordering::Relaxed)), (Some(Fault::Connection), 0), "{error}");
}

pub(crate) fn a_client_of_redis_rs_says_where_and_who() {
    let server = RedisServer::with(&["--requirepass", "pass"]);
    let client = redis::Client::open(format!("redis://:pass@127.0.0.1:{}/3", server.port)).expect("a URL");
    block_on(async {
        let options = RedisOptions::from_client(&client).expect("a server");
        let locker = Locker::builder().connect_with(options).await.expect("connected");
        let guard = locker.mutex("L").lock().await.expect("locked");
        let mut raw = client.get_connection().expect("connected");
        assert!(cmd("EXISTS").arg("L").query::<bool>(&mut raw).expect("asked"), "not in the client's database");
        drop(guard);
    });
}
