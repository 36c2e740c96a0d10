//! The suite on every store, plain and through faults: one line per store.

mod support;

use std::collections::HashSet;
use std::sync::OnceLock;
use std::time::Duration;

use support::tls::{certificates, tls_server};
use support::{Needs, RedisServer, Test};
use tenure::conformance::{Property, Subject, properties};

/// Long enough for a noisy machine, short enough to wait for.
const LEASE: Duration = Duration::from_secs(2);

/// A store: the schemes that it covers, what it needs, and how a test connects to it.
struct Store {
    name: &'static str,
    covers: &'static [&'static str],
    needs: Needs,
    check: fn(&Property, fn(Subject) -> Subject),
}

const STORES: [Store; 7] = [
    Store {
        name: "memory",
        covers: &["memory"],
        needs: Needs::Nothing,
        check: |p, with| p.run_paused(|| with(Subject::memory())),
    },
    Store { name: "sqlite", covers: &["sqlite"], needs: Needs::Nothing, check: |p, with| on(p, &sqlite(), with) },
    Store { name: "redis", covers: &["redis"], needs: Needs::Redis, check: |p, with| on(p, &redis(""), with) },
    Store { name: "redis_plain", covers: &[], needs: Needs::Redis, check: |p, with| on(p, &redis("?layout=plain"), with) },
    Store { name: "redis_pubsub", covers: &[], needs: Needs::Redis, check: |p, with| on(p, &redis("?wake=pubsub"), with) },
    Store { name: "redis_unix", covers: &["redis+unix"], needs: Needs::Redis, check: |p, with| on(p, &redis_unix(), with) },
    Store { name: "redis_tls", covers: &["rediss"], needs: Needs::Openssl, check: |p, with| on(p, &redis_tls(), with) },
];

fn on(property: &Property, url: &str, with: fn(Subject) -> Subject) {
    property.run(&with(Subject::url(url, LEASE)));
}

fn sqlite() -> String {
    static DIR: OnceLock<tempfile::TempDir> = OnceLock::new();
    let dir = DIR.get_or_init(|| tempfile::tempdir().expect("a directory"));
    format!("sqlite:{}", dir.path().join("locks.db").display())
}

fn server() -> &'static RedisServer {
    static SERVER: OnceLock<RedisServer> = OnceLock::new();
    SERVER.get_or_init(RedisServer::start)
}

fn redis(options: &str) -> String {
    format!("{}{options}", server().url())
}

fn redis_unix() -> String {
    format!("redis+unix://{}", server().path("socket").display())
}

fn redis_tls() -> String {
    static SERVER: OnceLock<(RedisServer, tempfile::TempDir)> = OnceLock::new();
    let (server, dir) = SERVER.get_or_init(|| {
        let dir = tempfile::tempdir().expect("a directory");
        certificates(dir.path(), "IP:127.0.0.1");
        (tls_server(dir.path()), dir)
    });
    format!("rediss://127.0.0.1:{}?ca={}", server.port, dir.path().join("ca.crt").display())
}

fn main() {
    let mut tests = vec![Test::new("every_scheme_is_tested", Needs::Nothing, every_scheme_is_tested)];
    for store in STORES {
        for property in properties() {
            let name = format!("{}::{}", store.name, property.name);
            tests.push(Test::new(name, store.needs, move || (store.check)(&property, |s| s)));
        }
        for property in properties() {
            let name = format!("{}::faulty::{}", store.name, property.name);
            tests.push(Test::new(name, store.needs, move || (store.check)(&property, Subject::faulty)));
        }
    }
    tests.push(Test::new("redis::no_key_without_an_expiry_is_left", Needs::Redis, no_key_without_an_expiry_is_left));
    support::run(tests)
}

fn every_scheme_is_tested() {
    let tested: HashSet<&str> = STORES.iter().flat_map(|s| s.covers).copied().collect();
    let known: HashSet<&str> = tenure::connect::schemes().collect();
    assert_eq!(tested, known, "a scheme without a line here, or a line without a scheme");
}

/// Whatever tests ran before it or run beside it: no key of ours may be immortal at any time.
fn no_key_without_an_expiry_is_left() {
    let mut raw = server().raw();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut raw).expect("listed");
    for key in keys {
        let left: i64 = redis::cmd("PTTL").arg(&key).query(&mut raw).expect("asked");
        assert_ne!(left, -1, "{key:?} would stay for ever");
    }
}
