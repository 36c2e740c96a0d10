//! The golden vectors of Redisson's read/write lock.

use std::time::Duration;

use tenure::{Error, Guard, Locker, Owner, RwLock};

use super::java::{A, B, C, Ear, Java, RW_CHANNEL, message, share};
use tenure_testkit::locker::{block_on, connect, must};
use tenure_testkit::{RedisServer, eventually};

const LONG: Duration = Duration::from_secs(600);
const LONGER: i64 = 1_200_000;

/// No lease of a test ends by itself.
fn lock(locker: &Locker) -> RwLock {
    locker.rwlock("L").lease_fixed(LONG)
}

fn owner(guard: &Guard) -> String {
    guard.owner_id().to_string()
}

fn field(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

/// In the order in which [`Java::fields`] tells them.
fn sorted<const N: usize>(mut fields: [(String, String); N]) -> [(String, String); N] {
    fields.sort();
    fields
}

#[track_caller]
fn about(left: i64, limit: i64) {
    assert!((limit - 120_000..=limit).contains(&left), "{left} of {limit}");
}

pub(crate) fn golden_vector_9_readers_share_and_a_writer_waits_for_all() {
    let server = RedisServer::start();
    let (mut java, mut ear) = (Java::at(&server), Ear::at(&server));
    block_on(async {
        let locker = connect(&server.url()).await;
        assert_eq!((java.read(A, LONGER), java.read(A, LONGER)), (None, None));
        let b = lock(&locker).read().await.expect("read");
        let ours = owner(&b);
        assert_eq!(java.fields(), sorted([field(A, "2"), field("mode", "read"), field(&ours, "1")]));
        for (reader, n, limit) in [(A, 1, LONGER), (A, 2, LONGER), (&ours, 1, 600_000)] {
            assert_eq!(java.get(&share(reader, n)).as_deref(), Some("1"));
            about(java.pttl(&share(reader, n)), limit);
        }
        about(java.pttl("L"), LONGER);
        // Writers of both wait, and tell the same time.
        assert!(lock(&locker).try_write().await.expect("asked").is_none());
        about(java.write(C, 1000).expect("busy"), LONGER);
        about(java.write(A, 1000).expect("busy"), LONGER);
        // Redisson's reader that wants to write waits for itself; ours is refused at once. Its second hold is counted here.
        let me = Owner::new();
        let read = lock(&locker).owner(&me).read().await.expect("read");
        let again = lock(&locker).owner(&me).read().await.expect("read again");
        assert_eq!(java.ask::<String>(&["HGET", "L", &owner(&read)]), "1");
        assert!(!java.exists(&share(&owner(&read), 2)));
        assert!(matches!(lock(&locker).owner(&me).write().await, Err(Error::Misuse(_))));
        drop(again);
        assert_eq!(ear.heard(), []);
    });
}

pub(crate) fn golden_vector_10_the_last_reader_tells_and_the_others_lower_the_time() {
    let server = RedisServer::start();
    let (mut java, mut ear) = (Java::at(&server), Ear::at(&server));
    let told = [message(RW_CHANNEL, "0")];
    block_on(async {
        let locker = connect(&server.url()).await;
        // Java leaves, ours stays: without our share its release would take the lock away.
        java.read(A, LONGER);
        java.read(A, LONGER);
        let ours = lock(&locker).read().await.expect("read");
        assert_eq!(java.unread(A), Some(0));
        assert!(!java.exists(&share(A, 2)) && java.exists(&share(A, 1)));
        assert_eq!(java.unread(A), Some(0));
        assert_eq!(java.fields(), sorted([field("mode", "read"), field(&owner(&ours), "1")]));
        about(java.pttl("L"), 600_000);
        assert_eq!(ear.heard(), []);
        ours.release().await.expect("given back");
        assert_eq!(ear.heard(), told);
        assert_eq!(java.keys(), ["redisson_lock_token:{L}"]);

        // Ours leaves, Java stays.
        java.read(B, 300_000);
        let ours = lock(&locker).read().await.expect("read");
        about(java.pttl("L"), 600_000);
        ours.release().await.expect("given back");
        assert_eq!(java.fields(), sorted([field("mode", "read"), field(B, "1")]));
        about(java.pttl("L"), 300_000);
        assert_eq!(ear.heard(), []);
        assert_eq!(java.unread(B), Some(1));
        assert_eq!(ear.heard(), told);
    });
}

pub(crate) fn golden_vector_11_a_writer_becomes_a_reader_and_says_so() {
    let server = RedisServer::start();
    let (mut java, mut ear) = (Java::at(&server), Ear::at(&server));
    block_on(async {
        let locker = connect(&server.url()).await;
        // Java writes and reads; its write release lets readers in, without a message.
        assert_eq!((java.write(A, LONGER), java.read(A, LONGER)), (None, None));
        assert_eq!(java.fields(), sorted([field("mode", "write"), field(&format!("{A}:write"), "1"), field(A, "1")]));
        assert!(lock(&locker).try_read().await.expect("asked").is_none());
        assert_eq!(java.unwrite(A), Some(1));
        let ours = lock(&locker).try_read().await.expect("asked").expect("read together");
        about(java.pttl("L"), LONGER);
        assert_eq!(java.unread(A), Some(0));
        ours.release().await.expect("given back");
        assert_eq!(ear.heard(), [message(RW_CHANNEL, "0")]);

        // Ours: the same keys afterwards. Redisson says nothing here, and its readers sleep on until the time they were told.
        let writer = lock(&locker).write().await.expect("written");
        let (me, token) = (owner(&writer), writer.token());
        assert_eq!(java.fields(), sorted([field("mode", "write"), field(&format!("{me}:write"), "1")]));
        about(java.read(B, LONGER).expect("busy"), 600_000);
        let reader = lock(&locker).downgrade(writer).await.expect("downgraded");
        assert_eq!((owner(&reader), reader.token()), (me.clone(), token));
        assert_eq!(java.fields(), sorted([field("mode", "read"), field(&me, "1")]));
        assert_eq!(java.get(&share(&me, 1)).as_deref(), Some("1"));
        // Redisson says 1 alone, which one that is about to sleep misses.
        assert_eq!(ear.heard(), [message(RW_CHANNEL, "1"), message(RW_CHANNEL, "0")]);
        assert_eq!(java.read(B, 300_000), None);
        assert_eq!(java.unread(B), Some(0));
        reader.release().await.expect("given back");
        assert_eq!(ear.heard(), [message(RW_CHANNEL, "0")]);
    });
}

pub(crate) fn golden_vector_12_writing_again_does_not_add_up_the_leases() {
    let server = RedisServer::start();
    let (mut java, mut ear) = (Java::at(&server), Ear::at(&server));
    block_on(async {
        let locker = connect(&server.url()).await;
        let me = Owner::new();
        let outer = lock(&locker).owner(&me).write().await.expect("written");
        let short = locker.rwlock("L").lease_fixed(Duration::from_secs(60)).owner(&me);
        let inner = short.write().await.expect("written again");
        // Redisson adds the second lease to what is left, and cuts it down to one lease when the first of them is given back. Here the
        // second shares the first one's hold.
        about(java.pttl("L"), 600_000);
        assert_eq!(java.fields(), sorted([field("mode", "write"), field(&format!("{}:write", owner(&outer)), "1")]));
        inner.release().await.expect("one of two");
        about(java.pttl("L"), 600_000);
        assert_eq!(ear.heard(), []);
        outer.release().await.expect("the last one");
        // Redisson says 1 alone, which one that is about to sleep misses.
        assert_eq!(ear.heard(), [message(RW_CHANNEL, "1"), message(RW_CHANNEL, "0")]);
        assert_eq!(java.keys(), ["redisson_lock_token:{L}"]);
        // A sum of Java's is respected, and a count of two.
        assert_eq!((java.write(A, 600_000), java.write(A, 600_000)), (None, None));
        about(java.pttl("L"), LONGER);
        for refused in [lock(&locker).try_write().await, lock(&locker).try_read().await] {
            assert!(refused.expect("asked").is_none());
        }
        assert_eq!(java.fields(), sorted([field("mode", "write"), field(&format!("{A}:write"), "2")]));
    });
}

pub(crate) fn golden_vector_13_the_release_of_nothing_says_nothing() {
    let server = RedisServer::start();
    let (mut java, mut ear) = (Java::at(&server), Ear::at(&server));
    block_on(async {
        let locker = connect(&server.url()).await;
        for reads in [true, false] {
            let guard = if reads { lock(&locker).read().await } else { lock(&locker).write().await }.expect("held");
            java.run(&["DEL", "L"]);
            // Redisson wakes everybody here, although nothing has come free.
            assert!(matches!(guard.release().await, Err(Error::Lost(_))));
            assert_eq!(ear.heard(), []);
            assert!(!java.exists("L"), "and nothing is made");
        }
        // What Java says of it wakes nobody to harm.
        assert_eq!((java.unread(A), java.unwrite(A)), (None, None));
        assert_eq!(ear.heard(), [message(RW_CHANNEL, "0"), message(RW_CHANNEL, "1")]);
    });
}

/// A reader of Java's that died: its field is there, its share is not.
fn dead_reader(java: &mut Java) {
    java.read(A, 1);
    eventually("expired", || !java.exists(&share(A, 1)));
}

pub(crate) fn golden_vector_14_the_last_living_reader_sweeps_the_dead() {
    let server = RedisServer::start();
    let (mut java, mut ear) = (Java::at(&server), Ear::at(&server));
    block_on(async {
        let locker = connect(&server.url()).await;
        let ours = lock(&locker).read().await.expect("read");
        dead_reader(&mut java);
        assert!(lock(&locker).try_write().await.expect("asked").is_none());
        ours.release().await.expect("given back");
        assert_eq!(ear.heard(), [message(RW_CHANNEL, "0")]);
        assert!(!java.exists("L"));
        lock(&locker).try_write().await.expect("asked").expect("nobody is left").release().await.expect("given back");
    });
}

pub(crate) fn golden_vector_15_a_reader_that_lapsed_leaves_the_others_alone() {
    let server = RedisServer::start();
    let (mut java, mut ear) = (Java::at(&server), Ear::at(&server));
    block_on(async {
        let locker = connect(&server.url()).await;
        java.read(B, LONGER);
        let short = locker.rwlock("L").lease_fixed(Duration::from_millis(500)).read().await.expect("read");
        must("told", short.lost()).await;
        // Redisson's release by one whose time is over is a success; ours says that it was lost. The field goes either way.
        assert!(matches!(short.release().await, Err(Error::Lost(_))));
        eventually("its field is gone", || java.fields() == sorted([field("mode", "read"), field(B, "1")]));
        about(java.pttl("L"), LONGER);
        assert_eq!(ear.heard(), []);
        assert_eq!(java.unread(B), Some(1));

        // The other way round.
        let ours = lock(&locker).read().await.expect("read");
        dead_reader(&mut java);
        assert_eq!(java.unread(A), Some(0));
        assert_eq!(java.fields(), sorted([field("mode", "read"), field(&owner(&ours), "1")]));
        about(java.pttl("L"), 600_000);
    });
}

pub(crate) fn golden_vector_16_a_downgrade_ends_with_its_own_lease() {
    let server = RedisServer::start();
    let mut java = Java::at(&server);
    block_on(async {
        let locker = connect(&server.url()).await;
        let writer = lock(&locker).write().await.expect("written");
        let short = locker.rwlock("L").lease_fixed(Duration::from_secs(200));
        let reader = short.downgrade(writer).await.expect("downgraded");
        // Redisson leaves the writer's time on the lock, which keeps writers out after the reader has died.
        about(java.pttl(&share(&owner(&reader), 1)), 200_000);
        about(java.pttl("L"), 200_000);
        drop(reader);
        eventually("given back", || !java.exists("L"));
        // What Java leaves so is a lock until then, also if its reader is dead.
        assert_eq!((java.write(A, LONGER), java.read(A, 1), java.unwrite(A)), (None, None, Some(1)));
        eventually("expired", || !java.exists(&share(A, 1)));
        about(java.pttl("L"), LONGER);
        let reader = lock(&locker).try_read().await.expect("asked").expect("readers come in");
        reader.release().await.expect("given back");
        lock(&locker).try_write().await.expect("asked").expect("a release sweeps the dead").release().await.expect("given back");
    });
}

/// The answer to its downgrade may be under way, or lost.
pub(crate) fn a_writer_that_reads_by_now_is_renewed_as_a_reader() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let locker = connect(&format!("{}?lease=2s", server.url())).await;
        let guard = locker.rwlock("L").write().await.expect("written");
        let owner = owner(&guard);
        let share = share(&owner, 1);
        redis::pipe()
            .atomic()
            .cmd("HDEL")
            .arg("L")
            .arg(format!("{owner}:write"))
            .ignore()
            .cmd("HSET")
            .arg("L")
            .arg("mode")
            .arg("read")
            .arg(&owner)
            .arg(1)
            .ignore()
            .cmd("SET")
            .arg(&share)
            .arg(1)
            .arg("PX")
            .arg(2000)
            .ignore()
            .query::<()>(&mut raw)
            .expect("it reads");
        let renewed = locker.stats().renewed;
        while locker.stats().renewed < renewed + 4 {
            guard.check().expect("held");
            let lives: bool = redis::cmd("EXISTS").arg(&share).query(&mut raw).expect("asked");
            assert!(lives, "its share is renewed too");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}
