//! Stores whose options are set in code, and locks whose kind is.

use std::sync::Arc;
use std::time::Duration;

use tenure::backend::Client;
use tenure::backends::memory::Memory;
use tenure::clock::Clock;
use tenure::options::{MemoryOptions, QuorumOptions};
use tenure::{ClientId, Error, Locker, Mode, Owner};

async fn named(name: &str) -> Locker {
    Locker::builder().connect_with(MemoryOptions::named(name)).await.expect("connected")
}

#[tokio::test]
async fn lockers_of_one_name_share_a_store_also_with_a_url() {
    let (coded, by_url) = (named("options-1").await, Locker::connect("memory:options-1").await.expect("connected"));
    let _guard = coded.mutex("L").lock().await.expect("locked");
    assert!(by_url.mutex("L").try_lock().await.expect("asked").is_none());
    let own = Locker::builder().connect_with(MemoryOptions::new()).await.expect("connected");
    assert!(own.mutex("L").try_lock().await.expect("asked").is_some());
    for bad in ["", "a/b", "a?b"] {
        let error = Locker::builder().connect_with(MemoryOptions::named(bad)).await.expect_err(bad);
        assert!(matches!(error, Error::Config(_)), "{error}");
    }
}

#[tokio::test]
async fn a_prefix_of_the_builder_stands_before_every_name_and_that_of_the_url_wins() {
    let all = named("options-2").await;
    let under = Locker::builder().prefix("a:").connect_with(MemoryOptions::named("options-2")).await.expect("connected");
    let _guard = under.mutex("L").lock().await.expect("locked");
    assert!(all.mutex("a:L").try_lock().await.expect("asked").is_none());
    let own =
        Arc::new(Memory::new(Client { id: ClientId::random().expect("random bits"), about: "a test".into() }, Clock::system()));
    let (under, all) = (Locker::builder().prefix("a:").backend(Arc::clone(&own)), Locker::builder().backend(own));
    let _own = under.expect("a locker").mutex("L").lock().await.expect("locked");
    assert!(all.expect("a locker").mutex("a:L").try_lock().await.expect("asked").is_none());
    let url = Locker::builder().prefix("a:").connect("memory:options-2?prefix=b:").await.expect("connected");
    assert!(url.mutex("L").try_lock().await.expect("asked").is_some());
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_file_in_code_is_the_file_of_a_url() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("locks.db");
    let options = tenure::options::SqliteOptions::file(&path).any_filesystem();
    let coded = Locker::builder().connect_with(options).await.expect("connected");
    let by_url = Locker::connect(&format!("sqlite:{}?filesystem=any", path.display())).await.expect("connected");
    let _guard = coded.mutex("L").lock().await.expect("locked");
    assert!(by_url.mutex("L").try_lock().await.expect("asked").is_none());
    let error = Locker::builder().connect_with(tenure::options::SqliteOptions::file("a\0b")).await.expect_err("a NUL");
    assert!(matches!(error, Error::Config(_)), "{error}");
}

#[tokio::test]
async fn a_quorum_in_code_is_that_of_a_url_and_has_no_quorum_in_it() {
    let nodes = ["a", "b", "c"].map(|node| MemoryOptions::named(format!("options-3-{node}")));
    let coded = Locker::builder().connect_with(QuorumOptions::new(nodes.clone())).await.expect("connected");
    let url = "quorum:memory:options-3-a|memory:options-3-b|memory:options-3-c";
    let by_url = Locker::connect(url).await.expect("connected");
    let _guard = coded.mutex("L").lock().await.expect("locked");
    assert!(by_url.mutex("L").try_lock().await.expect("asked").is_none());
    let names: Vec<String> = coded.stats().nodes.into_iter().map(|node| node.name).collect();
    assert_eq!(names, ["memory:options-3-a", "memory:options-3-b", "memory:options-3-c"]);
    let two = MemoryOptions::named("options-3-d");
    for bad in [QuorumOptions::new(nodes.clone()).node(two), QuorumOptions::new([QuorumOptions::new(nodes)])] {
        let error = Locker::builder().connect_with(bad).await.expect_err("no such quorum");
        assert!(matches!(error, Error::Config(_)), "{error}");
    }
}

#[tokio::test]
async fn a_lock_of_any_kind_is_the_lock_of_its_own_type() {
    let locker = Locker::connect("memory:").await.expect("connected");
    let any = |mode| locker.any_lock("L", mode);
    for mode in [Mode::Exclusive, Mode::Fair] {
        let guard = any(mode).note("a note").lease(Duration::from_secs(5)).acquire().await.expect("locked");
        assert!(locker.mutex("L").try_lock().await.expect("asked").is_none());
        assert_eq!((guard.lease(), any(mode).mode()), (Duration::from_secs(5), mode));
        guard.release().await.expect("given back");
    }
    let reader = any(Mode::Read).try_acquire().await.expect("asked").expect("free");
    assert!(locker.rwlock("L").try_read().await.expect("asked").is_some());
    assert!(any(Mode::Write).try_acquire_for(Duration::from_millis(10)).await.expect("asked").is_none());
    reader.release().await.expect("given back");
    let permits = locker.any_lock("P", Mode::Permits { take: 2, of: 3 });
    let _two = permits.acquire().await.expect("taken");
    assert_eq!(permits.inspect().await.expect("a state").permits.expect("permits").free, 1);
    assert!(locker.semaphore("P", 3).try_acquire().await.expect("asked").is_some());
}

#[tokio::test]
async fn a_lock_of_any_kind_is_reentered_and_refuses_what_holds_nothing() {
    let locker = Locker::connect("memory:").await.expect("connected");
    let owner = Owner::new();
    let lock = locker.any_lock("L", Mode::Exclusive).owner(&owner);
    let (one, two) = (lock.acquire().await.expect("locked"), lock.try_acquire().await.expect("asked").expect("re-entered"));
    assert_eq!(one.token(), two.token());
    for mode in [
        Mode::Downgrade,
        Mode::CountDown,
        Mode::Resize { of: 1 },
        Mode::Permits { take: 0, of: 1 },
        Mode::Permits { take: 2, of: 1 },
    ] {
        let error = locker.any_lock("M", mode).acquire().await.expect_err("no lock");
        assert!(matches!(error, Error::Config(_)), "{error}");
    }
}
