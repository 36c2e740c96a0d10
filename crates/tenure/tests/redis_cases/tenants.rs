//! Users of one server with different prefixes: what the lines of `docs/redis.md` let a hostile user do.

use std::collections::BTreeSet;
use std::time::Duration;

use redis::{Connection, ErrorKind, ServerErrorKind, cmd};
use tenure::Locker;

use tenure_testkit::acl::{PASSWORD, documented_tenant};
use tenure_testkit::locker::{block_on, connect, must};
use tenure_testkit::{RedisServer, eventually};

/// Names of the first tenant. Some have all that the second one's keys begin with, in the middle.
const NAMES: [&str; 4] = ["stock", "billing:42", "{billing:42}", "x{billing:42}:7"];

/// The lines of the page for users of servers.
const LINES: [&str; 4] = ["tenure", "tenure-cluster", "tenure-plain", "tenure-fences"];

/// What a server was asked to do, command by command, also by scripts.
struct Seen(std::thread::JoinHandle<Vec<Vec<String>>>);

impl Seen {
    fn begin(server: &RedisServer) -> Self {
        let mut monitor = server.raw();
        cmd("MONITOR").query::<()>(&mut monitor).expect("shown");
        Self(std::thread::spawn(move || {
            let mut commands = Vec::new();
            loop {
                let redis::Value::SimpleString(line) = monitor.recv_response().expect("a line") else { continue };
                let (_, words) = line.split_once("] \"").expect("a command");
                let words: Vec<String> = words.trim_end_matches('"').split("\" \"").map(str::to_owned).collect();
                if words[0] == "ECHO" {
                    return commands;
                }
                commands.push(words);
            }
        }))
    }

    fn end(self, raw: &mut Connection) -> Vec<Vec<String>> {
        cmd("ECHO").arg("end").query::<()>(raw).expect("said");
        self.0.join().expect("seen")
    }
}

fn tenant(server: &RedisServer, user: &str, prefix: &str, options: &str) -> String {
    format!("redis://{user}:{PASSWORD}@127.0.0.1:{}?prefix={prefix}{options}", server.port)
}

/// Uses a name in every way, with somebody who holds and somebody who waits.
async fn use_all(one: &Locker, other: &Locker, name: &str, exclusive_only: bool) {
    let a_while = Duration::from_millis(700);
    let mutex = |locker: &Locker| locker.mutex(name).note("a note");
    let held = must("a lock", mutex(one).lock()).await.expect("locked");
    assert!(mutex(other).try_lock_for(a_while).await.expect("asked").is_none());
    let seen = one.mutex(name).inspect().await.expect("asked");
    assert!(seen.holders[0].note.is_some() && seen.holders[0].token.is_some(), "{seen:?}");
    assert_eq!(one.list("").await.expect("listed").len(), 1);
    one.mutex(name).break_hold().await.expect("asked").expect("broken");
    drop(held);
    if exclusive_only {
        return;
    }
    let fair = |locker: &Locker| locker.mutex(name).fair().note("a note");
    let held = must("a lock", fair(one).lock()).await.expect("locked");
    let next = tokio::spawn(fair(other).lock());
    eventually_queued(one, name).await;
    held.release().await.expect("given back");
    must("the next", next).await.expect("no panic").expect("locked").release().await.expect("given back");
    let read = must("a share", one.rwlock(name).read()).await.expect("read");
    assert!(other.rwlock(name).try_write_for(a_while).await.expect("asked").is_none());
    read.release().await.expect("given back");
    let permits = |locker: &Locker| locker.semaphore(format!("{name}:s"), 1);
    let held = must("a permit", permits(one).acquire()).await.expect("taken");
    assert!(permits(other).try_acquire_for(a_while).await.expect("asked").is_none());
    assert_eq!(one.list("").await.expect("listed").len(), 1);
    held.release().await.expect("given back");
    let latch = |locker: &Locker| locker.latch(format!("{name}:l"));
    assert!(latch(one).set(1).await.expect("set"));
    assert!(!latch(other).wait_for(a_while).await.expect("asked"));
    latch(one).count_down().await.expect("counted");
}

async fn eventually_queued(locker: &Locker, name: &str) {
    let stands = async || locker.mutex(name).inspect().await.expect("asked").queue.len() == 1;
    must("a queue position", async { while !stands().await {} }).await;
}

/// All that the first tenant does, by the user of the line, with the commands that came of it.
fn all_that_a_tenant_does(server: &RedisServer, line: &str, options: &str) -> Vec<Vec<String>> {
    let mut raw = server.raw();
    documented_tenant(line, "a", "app:", &mut raw);
    let seen = Seen::begin(server);
    block_on(async {
        let url = tenant(server, "a", "app:", options);
        let (one, other) = (connect(&url).await, connect(&url).await);
        for name in NAMES {
            use_all(&one, &other, name, line == "tenure-plain").await;
        }
        one.close().await.expect("closed");
    });
    seen.end(&mut raw)
}

fn is_denied(answer: redis::RedisResult<redis::Value>) -> bool {
    let refused = |e: redis::RedisError| {
        e.kind() == ErrorKind::Server(ServerErrorKind::NoPerm) || e.to_string().contains("can't access at least one of the keys")
    };
    answer.is_err_and(refused)
}

/// Keys and channels of commands.
fn touched(commands: &[Vec<String>]) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut keys, mut channels) = (BTreeSet::new(), BTreeSet::new());
    for words in commands {
        match &*words[0].to_ascii_uppercase() {
            "PUBLISH" | "SPUBLISH" => drop(channels.insert(words[1].clone())),
            "SUBSCRIBE" | "SSUBSCRIBE" => channels.extend(words[1..].iter().cloned()),
            "EVALSHA" | "EVAL" => {
                let count = words[2].parse().expect("a number of keys");
                keys.extend(words[3..].iter().take(count).cloned());
            }
            "DEL" => keys.extend(words[1..].iter().cloned()),
            // Leaving what one has not subscribed to is nothing.
            "UNSUBSCRIBE" | "HELLO" | "AUTH" | "CLIENT" | "INFO" | "TIME" | "PUBSUB" | "SCAN" | "ACL" => {}
            _ => drop(keys.insert(words[1].clone())),
        }
    }
    (keys, channels)
}

/// The second tenant tries everything on everything that the first one has used.
fn nothing_is_left_to(server: &RedisServer, commands: &[Vec<String>]) {
    let mut raw = server.raw();
    let (keys, channels) = touched(commands);
    for line in LINES {
        documented_tenant(line, "b", "billing:", &mut raw);
        for words in commands {
            let (keys, channels) = touched(std::slice::from_ref(words));
            let said: String = cmd("ACL").arg("DRYRUN").arg("b").arg(words).query(&mut raw).expect("asked");
            assert!(keys.is_empty() && channels.is_empty() || said != "OK", "{line}: {words:?}");
        }
    }
    documented_tenant("tenure", "b", "billing:", &mut raw);
    let before: u64 = cmd("DBSIZE").query(&mut raw).expect("asked");
    let mut b = server.raw();
    cmd("AUTH").arg("b").arg(PASSWORD).query::<()>(&mut b).expect("logged in");
    for key in &keys {
        for words in
            [&["GET", key][..], &["TYPE", key], &["DEL", key], &["SET", key, "x"], &["PEXPIRE", key, "1"], &["EXISTS", key]]
        {
            assert!(is_denied(cmd(words[0]).arg(&words[1..]).query(&mut b)), "{words:?}");
        }
        let script = "return redis.call('DEL', ARGV[1])";
        assert!(is_denied(cmd("EVAL").arg(script).arg(0).arg(key).query(&mut b)), "{key}");
    }
    for channel in &channels {
        for words in [&["PUBLISH", channel, "0"][..], &["SUBSCRIBE", channel]] {
            assert!(is_denied(cmd(words[0]).arg(&words[1..]).query(&mut b)), "{words:?}");
        }
    }
    assert_eq!(cmd("DBSIZE").query::<u64>(&mut raw).expect("asked"), before);
}

/// So that nothing is missed: a kind of key or channel that is not among what was tried has not been tried.
fn has_kinds(all: &BTreeSet<String>, kinds: &[&str]) {
    for kind in kinds {
        let parts: Vec<&str> = kind.split('*').collect();
        let is_one = |text: &&String| text.starts_with(parts[0]) && text.ends_with(parts[parts.len() - 1]);
        assert!(all.iter().any(|text| is_one(&text)), "no {kind} in {all:?}");
    }
}

pub(crate) fn a_second_tenant_reaches_nothing_of_the_first_one() {
    let server = RedisServer::start();
    let (mut keys, mut channels) = (BTreeSet::new(), BTreeSet::new());
    for options in ["", "&wake=pubsub", "&semaphore=counter"] {
        let commands = all_that_a_tenant_does(&server, "tenure", options);
        nothing_is_left_to(&server, &commands);
        let (more_keys, more_channels) = touched(&commands);
        keys.extend(more_keys);
        channels.extend(more_channels);
    }
    let own = [
        "app:stock",
        "redisson_lock_token:{app:stock}",
        "redisson_lock_token:app:{billing:42}",
        "redisson_lock_queue:{app:*}",
        "redisson_lock_timeout:{app:*}",
        "tenure_lock_line:{app:*}",
        "tenure_lock_note:{app:*}",
        "tenure_lock_notes:{app:*}",
        "tenure_rwlock_writers:{app:*}",
        "{app:stock}:*:rwlock_timeout:1",
        "app:x{billing:42}:7:*:rwlock_timeout:1",
        "{app:*}:timeout",
        "tenure_permits:{app:*}",
        "tenure_latch:{app:stock:l}:*",
        "tenure_client:*",
    ];
    has_kinds(&keys, &own);
    let told = [
        "redisson_lock__channel:{app:stock}",
        "redisson_lock__channel:app:{billing:42}:*",
        "redisson_rwlock:{app:*}",
        "redisson_sc:{app:*}",
        "redisson_countdownlatch__channel__{app:stock:l}",
    ];
    has_kinds(&channels, &told);
}

pub(crate) fn a_second_tenant_reaches_nothing_of_the_plain_layout() {
    let server = RedisServer::start();
    for options in ["&layout=plain", "&layout=plain&wake=pubsub"] {
        let commands = all_that_a_tenant_does(&server, "tenure-plain", options);
        nothing_is_left_to(&server, &commands);
        let (keys, channels) = touched(&commands);
        has_kinds(&keys, &["app:stock", "tenure_lock_token:{app:*}", "tenure_lock_note:{app:*}", "tenure_client:*"]);
        has_kinds(&channels, &["tenure_lock__channel:{app:stock}"]);
    }
}

pub(crate) fn a_second_tenant_reaches_nothing_of_a_lock_of_several_servers() {
    let servers: [RedisServer; 3] = std::array::from_fn(|_| RedisServer::start());
    servers.iter().for_each(|server| documented_tenant("tenure", "a", "app:", &mut server.raw()));
    let seen = Seen::begin(&servers[0]);
    block_on(async {
        let nodes: Vec<String> = servers.iter().map(|s| format!("redis://a:{PASSWORD}@127.0.0.1:{}", s.port)).collect();
        let locker = connect(&format!("quorum:{}?prefix=app:&quarantine=off&node_timeout=1s", nodes.join("|"))).await;
        let guard = must("a lock", locker.mutex("stock").lock()).await.expect("locked");
        guard.release().await.expect("given back");
    });
    let commands = seen.end(&mut servers[0].raw());
    nothing_is_left_to(&servers[0], &commands);
    has_kinds(&touched(&commands).0, &["tenure:leases*", "redisson_lock_token:{app:stock}"]);
}

/// Fences and marks have keys of their own.
pub(crate) fn a_second_tenant_reaches_no_fence_of_the_first_one() {
    let server = RedisServer::start();
    let keys = [
        "tenure_fence:{app:stock}",
        "tenure_fence_tag:app:{billing:42}",
        "tenure_fence_tag:{app:}7",
        "tenure_mark:app:billing:42",
    ];
    let commands: Vec<Vec<String>> = keys.iter().map(|key| vec!["GET".to_owned(), (*key).to_owned()]).collect();
    nothing_is_left_to(&server, &commands);
}

/// As the page says of tenants who do not trust each other.
pub(crate) fn without_the_rights_that_show_names_of_others_locks_work() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    documented_tenant("tenure", "a", "app:", &mut raw);
    let less = ["SETUSER", "a", "-scan", "-client|tracking", "-pubsub|numsub", "-info"];
    cmd("ACL").arg(&less[..]).query::<()>(&mut raw).expect("fewer rights");
    block_on(async {
        let url = tenant(&server, "a", "app:", "");
        let (one, other) = (connect(&url).await, connect(&url).await);
        let held = must("a lock", one.mutex("stock").lock()).await.expect("locked");
        let next = tokio::spawn(other.mutex("stock").lock());
        let channel = "redisson_lock__channel:{app:stock}";
        let waits =
            |raw: &mut Connection| cmd("PUBSUB").arg("NUMSUB").arg(channel).query::<(String, u32)>(raw).expect("asked").1 == 1;
        eventually("it waits", || waits(&mut raw));
        held.release().await.expect("given back");
        drop(must("the next", next).await.expect("no panic").expect("locked"));
        assert_eq!(one.list("").await.expect_err("may not").fault(), Some(tenure::Fault::Denied));
    });
}

/// Who looks at all tenants from outside still sees who holds what.
pub(crate) fn a_client_without_a_prefix_knows_the_holders_of_all_prefixes() {
    let server = RedisServer::start();
    block_on(async {
        let (app, all) = (connect(&format!("{}?prefix=app:", server.url())).await, connect(&server.url()).await);
        let guard = must("a lock", app.mutex("stock:42").lock()).await.expect("locked");
        let seen = all.mutex("app:stock:42").inspect().await.expect("asked");
        assert_eq!(seen.holders[0].token, Some(guard.token()));
        assert!(seen.holders[0].note.as_ref().is_some_and(|note| note.contains(&std::process::id().to_string())), "{seen:?}");
    });
    eventually("the record is gone", || {
        cmd("KEYS").arg("tenure_client:*").query::<Vec<String>>(&mut server.raw()).expect("asked").len() <= 1
    });
}
