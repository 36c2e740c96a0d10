//! The suite on every store, plain and through faults: one line per store.

use std::collections::HashSet;
use std::sync::OnceLock;
use std::time::Duration;

use tenure::backends::faulty::Plan;
use tenure::conformance::{Property, Subject, properties};
use tenure_testkit::acl::{PASSWORD, documented_user, without_scripts};
use tenure_testkit::cluster::Cluster;
use tenure_testkit::sentinel::SentinelSet;
use tenure_testkit::server::{Login, Setup};
use tenure_testkit::tls::{certificates, tls_server};
use tenure_testkit::{Needs, RedisServer, Test};

/// Long enough for a noisy machine, short enough to wait for.
const LEASE: Duration = Duration::from_secs(2);

/// A store: the schemes that it covers, what it needs, and how a test connects to it.
struct Store {
    name: &'static str,
    covers: &'static [&'static str],
    needs: Needs,
    check: fn(&Property, fn(Subject) -> Subject),
}

const STORES: [Store; 27] = [
    Store {
        name: "memory",
        covers: &["memory"],
        needs: Needs::Nothing,
        check: |p, with| p.run_paused(|| with(Subject::memory())),
    },
    // Also by a real clock, which shows what a paused one hides: a waiter that spins.
    Store { name: "memory_named", covers: &["memory"], needs: Needs::Nothing, check: |p, with| on(p, "memory:suite", with) },
    Store {
        name: "quorum_of_memory",
        covers: &[],
        needs: Needs::Nothing,
        check: |p, with| p.run_paused(|| with(Subject::quorum(3, None))),
    },
    Store {
        name: "quorum_of_faulty",
        covers: &[],
        needs: Needs::Nothing,
        check: |p, with| p.run_paused(|| with(Subject::quorum(3, Some(Plan::bad_day(Duration::from_millis(20)))))),
    },
    Store { name: "quorum_of_redis", covers: &["quorum"], needs: Needs::Redis, check: |p, with| on(p, &quorum(3), with) },
    Store { name: "quorum_of_five", covers: &[], needs: Needs::Redis, check: |p, with| on(p, &quorum(5), with) },
    Store { name: "sqlite", covers: &["sqlite"], needs: Needs::Nothing, check: on_sqlite },
    Store { name: "redis", covers: &["redis"], needs: Needs::Redis, check: |p, with| on(p, &redis(""), with) },
    Store { name: "redis_plain", covers: &[], needs: Needs::Redis, check: |p, with| on(p, &redis("?layout=plain"), with) },
    Store { name: "redis_pubsub", covers: &[], needs: Needs::Redis, check: |p, with| on(p, &redis("?wake=pubsub"), with) },
    Store { name: "redis_counter", covers: &[], needs: Needs::Redis, check: |p, with| on(p, &redis("?semaphore=counter"), with) },
    Store { name: "redis_unix", covers: &["redis+unix"], needs: Needs::Redis, check: |p, with| on(p, &redis_unix(), with) },
    Store { name: "redis_tls", covers: &["rediss"], needs: Needs::Openssl, check: |p, with| on(p, &redis_tls(), with) },
    Store {
        name: "redis_acl",
        covers: &[],
        needs: Needs::Redis,
        check: |p, with| on(p, &redis_acl("tenure", "?prefix=app:"), with),
    },
    Store {
        name: "redis_plain_acl",
        covers: &[],
        needs: Needs::Redis,
        check: |p, with| on(p, &redis_acl("tenure-plain", "?prefix=app:&layout=plain"), with),
    },
    Store {
        name: "redis_plain_commands",
        covers: &[],
        needs: Needs::Redis,
        check: |p, with| redis_without_scripts().iter().filter(|_| !of_voters(p)).for_each(|url| on(p, url, with)),
    },
    Store { name: "redis_sentinel_acl", covers: &[], needs: Needs::Redis, check: |p, with| on(p, &sentinel_acl(), with) },
    Store { name: "redis_cluster_acl", covers: &[], needs: Needs::Redis, check: |p, with| on(p, &cluster_acl(), with) },
    Store {
        name: "redis_sentinel",
        covers: &["redis+sentinel"],
        needs: Needs::Redis,
        check: |p, with| on(p, &sentinel(""), with),
    },
    Store {
        name: "redis_sentinel_plain",
        covers: &[],
        needs: Needs::Redis,
        check: |p, with| on(p, &sentinel("?layout=plain"), with),
    },
    Store { name: "redis_sentinel_sync", covers: &[], needs: Needs::Redis, check: |p, with| on(p, &sentinel("?sync=2"), with) },
    Store {
        name: "redis_sentinel_tls",
        covers: &["rediss+sentinel"],
        needs: Needs::Openssl,
        check: |p, with| on(p, &sentinel_tls(), with),
    },
    Store { name: "redis_cluster", covers: &["redis+cluster"], needs: Needs::Redis, check: |p, with| on(p, &cluster(""), with) },
    Store {
        name: "redis_cluster_plain",
        covers: &[],
        needs: Needs::Redis,
        check: |p, with| on(p, &cluster("?layout=plain"), with),
    },
    Store {
        name: "redis_cluster_shards",
        covers: &[],
        needs: Needs::Redis,
        check: |p, with| on(p, &cluster("?wake=pubsub"), with),
    },
    Store {
        name: "redis_cluster_pubsub",
        covers: &[],
        needs: Needs::Redis,
        check: |p, with| on(p, &cluster("?wake=pubsub&sharded=off"), with),
    },
    Store {
        name: "redis_cluster_tls",
        covers: &["rediss+cluster"],
        needs: Needs::Openssl,
        check: |p, with| on(p, &cluster_tls(), with),
    },
];

/// Stores that are in no crate of ours, as others would bring them: a file in `stores/`, and a line below.
macro_rules! elsewhere {
    ($($name:ident: $url:literal;)*) => {
        mod stores { $(pub(crate) mod $name;)* }

        const ELSEWHERE: &[Store] = &[$(
            Store {
                name: stringify!($name),
                covers: &[stringify!($name)],
                needs: Needs::Nothing,
                check: |p, with| on(p, $url, with),
            },
        )*];

        fn register() {
            $(tenure::connect::register(&stores::$name::SCHEME).expect("registered");)*
        }
    };
}

elsewhere! {
    toy: "toy://user:secret@host/suite";
}

fn on(property: &Property, url: &str, with: fn(Subject) -> Subject) {
    property.run(&with(Subject::url(url, LEASE)));
}

/// A file each: all names of one share a counter, and some properties say which token is the next.
fn on_sqlite(property: &Property, with: fn(Subject) -> Subject) {
    let dir = tempfile::tempdir().expect("a directory");
    on(property, &format!("sqlite:{}", dir.path().join("locks.db").display()), with);
}

fn server() -> &'static RedisServer {
    static SERVER: OnceLock<RedisServer> = OnceLock::new();
    SERVER.get_or_init(RedisServer::start)
}

fn redis(options: &str) -> String {
    format!("{}{options}", server().url())
}

/// So many servers that make one lock. Votes are waited for as long as a noisy machine may take.
fn quorum(n: usize) -> String {
    static SERVERS: OnceLock<[RedisServer; 5]> = OnceLock::new();
    let servers = &SERVERS.get_or_init(|| std::array::from_fn(|_| RedisServer::start()))[..n];
    let urls: Vec<String> = servers.iter().map(RedisServer::url).collect();
    format!("quorum:{}?node_timeout=1s&quarantine=off", urls.join("|"))
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

fn sentinel(options: &str) -> String {
    static SET: OnceLock<SentinelSet> = OnceLock::new();
    format!("{}{options}", SET.get_or_init(SentinelSet::start).url())
}

fn cluster(options: &str) -> String {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    format!("{}{options}", CLUSTER.get_or_init(Cluster::start).url())
}

/// An authority of our own, and what a client that must show who it is says in its URL.
fn mutual_tls() -> &'static (tempfile::TempDir, String) {
    static DIR: OnceLock<(tempfile::TempDir, String)> = OnceLock::new();
    DIR.get_or_init(|| {
        let dir = tempfile::tempdir().expect("a directory");
        certificates(dir.path(), "IP:127.0.0.1");
        let file = |name: &str| dir.path().join(name).display().to_string();
        let options = format!("?ca={}&cert={}&key={}", file("ca.crt"), file("client.crt"), file("client.key"));
        (dir, options)
    })
}

fn sentinel_tls() -> String {
    static SET: OnceLock<SentinelSet> = OnceLock::new();
    let (dir, options) = mutual_tls();
    let setup = || Setup::default().mutual_tls(dir.path());
    format!("{}{options}", SET.get_or_init(|| SentinelSet::of(setup(), setup())).url())
}

fn cluster_tls() -> String {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    let (dir, options) = mutual_tls();
    format!("{}{options}", CLUSTER.get_or_init(|| Cluster::of(Setup::default().mutual_tls(dir.path()))).url())
}

const ADMIN: Login = Login { user: "admin", pass: "for-the-servers" };

/// Logged in as a user of the documentation, who has no rights but those of its line there.
fn redis_acl(user: &str, options: &str) -> String {
    documented_user(user, &mut server().raw());
    format!("redis://{user}:{PASSWORD}@127.0.0.1:{}{options}", server().port)
}

/// What only a node of a quorum is asked, which takes scripts.
fn of_voters(property: &Property) -> bool {
    [
        "a_token_is_at_least_what_was_asked_for",
        "a_hold_that_goes_on_is_raised_to_a_larger_token",
        "a_break_raises_the_fence_also_where_nobody_holds",
        "an_identification_tells_who_answers",
    ]
    .contains(&property.name)
}

/// Logged in as a user who may call no script, if the server has commands that do.
fn redis_without_scripts() -> &'static Option<String> {
    static URL: OnceLock<(RedisServer, Option<String>)> = OnceLock::new();
    let (_, url) = URL.get_or_init(|| {
        let server = RedisServer::start();
        let mut raw = server.raw();
        documented_user("tenure-plain", &mut raw);
        let url = format!("redis://tenure-plain:{PASSWORD}@127.0.0.1:{}?prefix=app:&layout=plain", server.port);
        (server, without_scripts("tenure-plain", &mut raw).then_some(url))
    });
    url
}

fn sentinel_acl() -> String {
    static SET: OnceLock<SentinelSet> = OnceLock::new();
    let set = SET.get_or_init(|| {
        let set = SentinelSet::with_logins(ADMIN, Login { user: "admin", pass: "for-the-sentinels" });
        set.servers.iter().for_each(|server| documented_user("tenure", &mut server.raw()));
        set.sentinels.iter().for_each(|sentinel| documented_user("tenure-sentinel", &mut sentinel.raw()));
        set
    });
    let url = set.url().replace("://", &format!("://tenure:{PASSWORD}@"));
    format!("{url}?prefix=app:&sentinel_user=tenure-sentinel&sentinel_pass={PASSWORD}")
}

fn cluster_acl() -> String {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    let cluster = CLUSTER.get_or_init(|| {
        let cluster = Cluster::with_login(ADMIN);
        cluster.nodes.iter().for_each(|node| documented_user("tenure-cluster", &mut node.raw()));
        cluster
    });
    format!("{}?prefix=app:", cluster.url().replace("://", &format!("://tenure-cluster:{PASSWORD}@")))
}

fn main() {
    register();
    let mut tests = vec![Test::new("every_scheme_is_tested", Needs::Nothing, every_scheme_is_tested)];
    for store in STORES.iter().chain(ELSEWHERE) {
        for property in properties() {
            let name = format!("{}::{}", store.name, property.name);
            tests.push(Test::new(name, store.needs, move || (store.check)(&property, |s| s)));
        }
        for property in properties() {
            let name = format!("{}::faulty::{}", store.name, property.name);
            tests.push(Test::new(name, store.needs, move || (store.check)(&property, Subject::faulty)));
        }
    }
    // Nearly all of it is waiting for leases: with ten at a time the processor was idle for nine tenths of it.
    tenure_testkit::run_at_once(32, tests, no_key_is_left_for_ever)
}

fn every_scheme_is_tested() {
    let tested: HashSet<&str> = STORES.iter().chain(ELSEWHERE).flat_map(|s| s.covers).copied().collect();
    let known: HashSet<&str> = tenure::connect::schemes().collect();
    assert_eq!(tested, known, "a scheme without a line here, or a line without a scheme");
}

/// After the whole suite: what is there may outlive its use, but not forever.
fn no_key_is_left_for_ever() {
    let left = tenure_testkit::server::keys_for_ever();
    assert!(left.is_empty(), "keys that would stay for ever: {left:?}");
}
