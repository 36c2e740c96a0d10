//! Which names are listed, at what cost, and which no lock may have.

use redis::{Connection, cmd, pipe};
use tenure::{Error, Locker};

use tenure_testkit::RedisServer;
use tenure_testkit::cluster::Cluster;
use tenure_testkit::locker::{block_on, connect, must};

/// Keys that others have, of all kinds, some with names like ours.
const FOREIGN: usize = 20_000;

fn foreign_keys(raw: &mut Connection, numbers: std::ops::Range<usize>) {
    for chunk in numbers.collect::<Vec<_>>().chunks(1000) {
        let mut all = pipe();
        for n in chunk {
            match n % 5 {
                0 => all.cmd("HSET").arg(format!("user:{n}")).arg("email").arg("x").ignore(),
                1 => all.cmd("HSET").arg(format!("session:{n}")).arg("11111111-1111").arg("x").ignore(),
                2 => all.cmd("ZADD").arg(format!("{{queue:{n}}}:timeout")).arg(1).arg("job").ignore(),
                3 => all.cmd("SET").arg(format!("page:{n}")).arg("x").arg("PX").arg(3_600_000).ignore(),
                _ => all.cmd("SET").arg(format!("tenure_lock_token:{{gone:{n}}}")).arg("1").ignore(),
            };
        }
        all.query::<()>(raw).expect("written");
    }
}

/// How often a server was asked anything. What a script does by itself is not asked.
fn questions(raw: &mut Connection) -> u64 {
    let said: String = cmd("INFO").arg("commandstats").query(raw).expect("asked");
    let calls = |line: &str| {
        let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let own = ["evalsha", "eval", "get", "pubsub|numsub", "pubsub|shardnumsub"].contains(&command);
        rest.split(',').next()?.parse::<u64>().ok().filter(|_| own)
    };
    said.lines().filter_map(calls).sum()
}

async fn hold_all(locker: &Locker) -> Vec<tenure::Guard> {
    let mut guards = Vec::new();
    for n in 0..5 {
        guards.push(must("a lock", locker.mutex(format!("l:{n}")).lock()).await.expect("locked"));
        if locker.capabilities().modes == tenure::backend::Modes::ALL {
            guards.push(must("a share", locker.rwlock(format!("r:{n}")).read()).await.expect("locked"));
            guards.push(must("a permit", locker.semaphore(format!("s:{n}"), 2).acquire()).await.expect("locked"));
        }
    }
    guards
}

fn listing_asks_little(options: &str, held: usize) {
    let server = RedisServer::start();
    let mut raw = server.raw();
    foreign_keys(&mut raw, 0..FOREIGN);
    block_on(async {
        let (locker, other) =
            (connect(&format!("{}{options}", server.url())).await, connect(&format!("{}{options}", server.url())).await);
        let guards = hold_all(&locker).await;
        let before = questions(&mut raw);
        let listed = must("a list", other.list("")).await.expect("listed");
        let asked = questions(&mut raw) - before;
        assert_eq!((listed.len(), guards.len()), (held, held), "{options}: {listed:?}");
        // A script per thousand keys, and per lock an inspection, which asks in the script too, and a client's record.
        assert!(asked < 400, "{options}: {asked} questions");
        assert_eq!(must("a list", other.list("l:")).await.expect("listed").len(), 5);
        assert_eq!(must("a list", other.list("user:")).await.expect("listed").len(), 0);
    });
}

pub(crate) fn a_list_asks_little_however_many_keys_others_have() {
    listing_asks_little("", 15);
    listing_asks_little("?semaphore=counter", 15);
    listing_asks_little("?layout=plain", 5);
}

pub(crate) fn a_list_of_a_cluster_asks_little_too() {
    let cluster = Cluster::start();
    let masters: Vec<usize> = (0..cluster.nodes.len()).filter(|n| cluster.nodes[*n].is_master()).collect();
    let mut written = 0;
    for node in &masters {
        let mut raw = cluster.nodes[*node].raw();
        for n in 0..2000 {
            // Only those whose slot is here are taken.
            let key = format!("user:{n}");
            written += u32::from(cmd("HSET").arg(key).arg("email").arg("x").query::<()>(&mut raw).is_ok());
        }
    }
    assert_eq!(written, 2000);
    let asked = || masters.iter().map(|node| questions(&mut cluster.nodes[*node].raw())).sum::<u64>();
    block_on(async {
        let (locker, other) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
        let guards = hold_all(&locker).await;
        let before = asked();
        let listed = must("a list", other.list("")).await.expect("listed");
        assert_eq!((listed.len(), guards.len()), (15, 15), "{listed:?}");
        assert!(asked() - before < 400, "{} questions", asked() - before);
    });
}

pub(crate) fn too_many_names_for_a_list_are_an_error_that_says_what_helps() {
    let server = RedisServer::start();
    let fill = "for i = 1, tonumber(ARGV[1]) do
      local key = 'many:' .. i
      redis.call('HSET', key, '11111111-1111-1111-1111-111111111111:1', 1)
      redis.call('PEXPIRE', key, 3600000)
    end";
    cmd("EVAL").arg(fill).arg(0).arg(100_001).query::<()>(&mut server.raw()).expect("filled");
    block_on(async {
        let locker = connect(&server.url()).await;
        let error = must("an error", locker.list("")).await.expect_err("too many");
        assert!(matches!(error, Error::Config { .. }), "{error}");
        assert!(error.to_string().contains("more than 100000 names; allowed: a longer prefix"), "{error}");
        assert_eq!(must("a list", locker.list("many:77777")).await.expect("listed").len(), 1);
    });
}

/// Every verb refuses the name, and nothing is written.
async fn refuses(locker: &Locker, name: &str) {
    let latch = locker.latch(name);
    let mut answers = vec![
        locker.mutex(name).try_lock().await.map(drop),
        locker.mutex(name).lock().await.map(drop),
        locker.mutex(name).inspect().await.map(drop),
        locker.mutex(name).break_hold().await.map(drop),
    ];
    if locker.capabilities().modes == tenure::backend::Modes::ALL {
        answers.extend([
            locker.mutex(name).fair().lock().await.map(drop),
            locker.rwlock(name).read().await.map(drop),
            locker.rwlock(name).write().await.map(drop),
            locker.semaphore(name, 2).acquire().await.map(drop),
            locker.semaphore(name, 2).resize(3).await,
            latch.set(1).await.map(drop),
            latch.count_down().await.map(drop),
            latch.wait().await,
        ]);
    }
    for answer in answers {
        let error = answer.expect_err(name);
        assert!(matches!(error, Error::Config { .. }) && error.to_string().contains("reserved"), "{name}: {error}");
    }
}

pub(crate) fn keys_that_are_kept_beside_locks_are_no_names_for_locks() {
    let server = RedisServer::start();
    let uuid = "11111111-1111-1111-1111-111111111111";
    let names = [
        "redisson_lock_token:{x}",
        "redisson_lock_queue:{x}",
        "redisson_lock_timeout:a{x}b",
        "tenure_lock_token:{x}",
        "tenure_lock_note:{x}",
        "tenure_lock_notes:{x}",
        "tenure_lock_line:{x}",
        "tenure_rwlock_writers:{x}",
        "tenure_permits:{x}",
        "{x}:timeout",
        "tenure:leases",
        "tenure:leases:app:",
        "tenure_fence:{x}",
        "tenure_mark:x",
        &format!("tenure_client:{uuid}"),
        &format!("tenure_latch:{{x}}:{uuid}:1"),
        &format!("{{x}}:{uuid}:1:rwlock_timeout:1"),
    ];
    block_on(async {
        for options in ["", "?layout=plain", "?semaphore=counter"] {
            let locker = connect(&format!("{}{options}", server.url())).await;
            for name in names {
                refuses(&locker, name).await;
            }
            // What a prefix makes of a name counts.
            let sign = if options.is_empty() { '?' } else { '&' };
            let prefixed = connect(&format!("{}{options}{sign}prefix=redisson_lock_token:", server.url())).await;
            refuses(&prefixed, "{x}").await;
            must("a lock", prefixed.mutex("x").try_lock())
                .await
                .expect("asked")
                .expect("locked")
                .release()
                .await
                .expect("given back");
            for free in ["redisson_lock_token", "my:redisson_lock_token:{x}", "order:timeout", "tenure_x"] {
                let guard = must("a lock", locker.mutex(free).try_lock()).await.expect("asked").expect("locked");
                guard.release().await.expect("given back");
            }
            locker.close().await.expect("closed");
            prefixed.close().await.expect("closed");
        }
    });
    let left: Vec<String> = cmd("KEYS").arg("*").query(&mut server.raw()).expect("asked");
    assert!(left.iter().all(|key| key.contains("_lock_token:")), "{left:?}");
}

pub(crate) fn a_list_that_lacks_an_answer_is_an_error() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let locker = connect(&server.url()).await;
        let _held = locker.mutex("held").lock().await.expect("locked");
        let _other = locker.mutex("other").lock().await.expect("locked");
        // More than an answer may have: the connection ends before anything is known of any of them.
        cmd("SETRANGE").arg("redisson_lock_token:{other}").arg(17 << 20).arg("x").query::<()>(&mut raw).expect("written");
        let error = must("an error", locker.list("")).await.expect_err("it would say that nothing is held");
        assert_eq!(error.fault(), Some(tenure::Fault::Protocol), "{error}");
    });
}

pub(crate) fn long_notes_of_very_many_are_left_out() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let locker = connect(&server.url()).await;
        let permit = locker.semaphore("S", 9999).note("a note").acquire().await.expect("acquired");
        let mut all = pipe();
        for n in 100..5100 {
            let note = format!("{n} {:032x} {}", n, "n".repeat(tenure::backend::Claim::MAX_NOTE_BYTES));
            all.cmd("HSET").arg("tenure_lock_notes:{S}").arg(format!("{}:{n}", permit.owner_id().client)).arg(note).ignore();
        }
        all.query::<()>(&mut raw).expect("written");
        let state = locker.semaphore("S", 9999).inspect().await.expect("inspected");
        let [holder] = &*state.holders else { panic!("{} holders", state.holders.len()) };
        assert_eq!((&*holder.owner, holder.token), (&*permit.owner_id().to_string(), Some(permit.token())));
    });
}

/// They have all keys but the lock itself in common, by Redisson's rule for hash tags.
pub(crate) fn a_name_and_the_same_in_braces_are_kept_apart_or_refused() {
    let server = RedisServer::start();
    block_on(async {
        let locker = connect(&server.url()).await;
        for name in ["{a}", "{a}b}"] {
            let refused = [
                locker.mutex(name).fair().try_lock().await.map(drop),
                locker.rwlock(name).try_read().await.map(drop),
                locker.rwlock(name).write().await.map(drop),
                locker.semaphore(name, 1).acquire().await.map(drop),
                locker.semaphore(name, 1).resize(2).await,
            ];
            for answer in refused {
                let error = answer.expect_err(name).to_string();
                assert!(error.contains("would share its keys with"), "{name}: {error}");
            }
            // These have nothing in common that matters.
            let bare = &name[1..name.len() - 1];
            let (one, other) = (locker.mutex(name).try_lock().await, locker.mutex(bare).try_lock().await);
            assert!(one.expect("asked").is_some() && other.expect("asked").is_some(), "{name}");
        }
        assert!(locker.latch("{l}").set(1).await.expect("set") && locker.latch("l").set(1).await.expect("set"));
        for name in ["a", "{a}:b", "b:{a}", "{a}{b}"] {
            drop(locker.mutex(format!("fair:{name}")).fair().try_lock().await.expect("asked").expect("locked"));
            drop(locker.rwlock(format!("{name}:rw")).try_write().await.expect("asked").expect("locked"));
        }
        // What a prefix makes of a name counts.
        let prefixed = connect(&format!("{}?prefix=app:", server.url())).await;
        drop(prefixed.semaphore("{a}", 1).try_acquire().await.expect("asked").expect("acquired"));
    });
}

pub(crate) fn a_lock_of_very_many_readers_is_not_said_to_be_free() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    let mut all = pipe();
    all.cmd("HSET").arg("L").arg("mode").arg("read").ignore();
    for n in 1..=5000 {
        let owner = format!("11111111-1111-1111-1111-111111111111:{n}");
        all.cmd("HSET").arg("L").arg(&owner).arg(1).ignore();
        all.cmd("SET").arg(format!("{{L}}:{owner}:rwlock_timeout:1")).arg(1).arg("PX").arg(600_000).ignore();
    }
    all.cmd("PEXPIRE").arg("L").arg(600_000).ignore();
    all.query::<()>(&mut raw).expect("held");
    block_on(async {
        let locker = connect(&server.url()).await;
        assert!(locker.rwlock("L").try_write().await.expect("asked").is_none(), "it is held");
        assert_eq!(locker.rwlock("L").inspect().await.expect("inspected").holders.len(), 5000);
        assert_eq!(locker.list("").await.expect("listed").len(), 1);
        let broken = locker.rwlock("L").break_hold().await.expect("asked").expect("broken");
        assert_eq!(broken.holders.len(), 5000);
        drop(locker.rwlock("L").try_write().await.expect("asked").expect("free"));
        // So many that no answer could name them all: an error, and not nobody.
        let mut all = pipe();
        all.cmd("HSET").arg("M").arg("mode").arg("read").ignore();
        for n in 1..=70_000 {
            all.cmd("HSET").arg("M").arg(format!("11111111-1111-1111-1111-111111111111:{n}")).arg(1).ignore();
        }
        all.cmd("PEXPIRE").arg("M").arg(600_000).ignore();
        all.query::<()>(&mut raw).expect("held");
        for error in [
            locker.rwlock("M").inspect().await.map(drop).expect_err("inspected"),
            locker.rwlock("M").break_hold().await.map(drop).expect_err("broken"),
            locker.list("").await.map(drop).expect_err("listed"),
        ] {
            assert!(error.to_string().contains("too many"), "{error}");
        }
    });
}
