//! Fences for objects, in memory and in a directory.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::TryStreamExt;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{Attribute, Attributes, GetResult, ObjectStore, ObjectStoreExt};
use tempfile::TempDir;
use tenure::fence::object::{Error, InPlace, Versions};
use tenure::fence::{FenceStats, Pass, Stale};
use tenure::{Locker, Token};
use tokio::task::JoinSet;

use super::odd_store::{Flaw, Odd};
use super::redis::{LARGE, stale, token};
use tenure_testkit::locker::{block_on, must};

/// The two fences have the same verbs.
#[derive(Debug, Clone)]
enum Objects {
    InPlace(InPlace),
    Versions(Versions),
}

impl Objects {
    async fn put(&self, at: &Path, content: &str, pass: &dyn Pass) -> Result<(), Error> {
        match self {
            Self::InPlace(objects) => objects.put(at, content.to_owned().into(), pass).await,
            Self::Versions(objects) => objects.put(at, content.to_owned().into(), pass).await,
        }
    }

    async fn delete(&self, at: &Path, pass: &dyn Pass) -> Result<(), Error> {
        match self {
            Self::InPlace(objects) => objects.delete(at, pass).await,
            Self::Versions(objects) => objects.delete(at, pass).await,
        }
    }

    async fn get(&self, at: &Path) -> Option<(u64, String)> {
        let (token, object): (Token, GetResult) = match self {
            Self::InPlace(objects) => objects.get(at).await.expect("read"),
            Self::Versions(objects) => objects.get(at).await.expect("read"),
        }?;
        Some((token.get(), String::from_utf8(object.bytes().await.expect("read").to_vec()).expect("text")))
    }

    fn stats(&self) -> FenceStats {
        match self {
            Self::InPlace(objects) => objects.stats(),
            Self::Versions(objects) => objects.stats(),
        }
    }
}

/// Each fence on each store that can carry it.
async fn everywhere() -> (Vec<Objects>, TempDir) {
    let dir = tempfile::tempdir().expect("a directory");
    let files: Arc<dyn ObjectStore> = Arc::new(LocalFileSystem::new_with_prefix(dir.path()).expect("a store"));
    let (memory, slow): (Arc<dyn ObjectStore>, Arc<dyn ObjectStore>) =
        (Arc::new(InMemory::new()), Arc::new(Odd::new(Flaw::None)));
    let open = async |store| Objects::InPlace(InPlace::open(store, &Path::from("scratch")).await.expect("a sound store"));
    let versions = [Arc::clone(&memory), files, Arc::clone(&slow)].map(|store| Objects::Versions(Versions::new(store)));
    let in_place = [open(Arc::new(InMemory::new())).await, open(Arc::new(Odd::new(Flaw::None))).await];
    (versions.into_iter().chain(in_place).collect(), dir)
}

fn some(token: u64, content: &str) -> Option<(u64, String)> {
    Some((token, content.to_owned()))
}

pub(crate) fn what_is_not_smaller_is_written_and_what_is_smaller_is_stale() {
    block_on(async {
        let (all, _dir) = everywhere().await;
        for objects in all {
            let at = Path::from("a/b");
            assert_eq!(objects.get(&at).await, None);
            for n in [0, 0, 5, 5, 9, 10].into_iter().chain(LARGE) {
                objects.put(&at, &format!("by {n}"), &token(n)).await.expect("written");
                assert_eq!(objects.get(&at).await, some(n, &format!("by {n}")));
            }
            let (last, before) = (LARGE[5], LARGE[4]);
            for n in [before, 9, 0] {
                let late = objects.put(&at, "late", &token(n)).await.expect_err("too late");
                assert_eq!(late.stale(), Some(&stale("a/b", n, last)), "{objects:?}");
            }
            assert_eq!(objects.get(&at).await, some(last, &format!("by {last}")));
            objects.put(&Path::from("a/c"), "other", &token(1)).await.expect("another object has a fence of its own");
            let refused = objects.put(&at, "x", &token(1 << 63)).await.expect_err("no such token");
            assert!(matches!(refused, Error::Request(_)) && refused.to_string().contains("9223372036854775807"), "{refused}");
            assert_eq!((objects.stats().accepted, objects.stats().stale), (13, 3));
        }
    });
}

pub(crate) fn deleting_an_object_keeps_its_fence() {
    block_on(async {
        let (all, _dir) = everywhere().await;
        for objects in all {
            let at = Path::from("a");
            objects.put(&at, "x", &token(5)).await.expect("written");
            objects.delete(&at, &token(7)).await.expect("deleted");
            objects.delete(&at, &token(7)).await.expect("may be repeated");
            assert_eq!(objects.get(&at).await, None, "{objects:?}");
            let late = objects.put(&at, "back again", &token(6)).await.expect_err("too late");
            assert_eq!(late.stale(), Some(&stale("a", 6, 7)));
            objects.delete(&at, &token(6)).await.expect_err("too late");
            assert_eq!(objects.get(&at).await, None);
            objects.put(&at, "new", &token(7)).await.expect("written");
            assert_eq!(objects.get(&at).await, some(7, "new"));
            // Deleting what is not there is a write too.
            objects.delete(&Path::from("never"), &token(3)).await.expect("deleted");
            objects.put(&Path::from("never"), "x", &token(2)).await.expect_err("too late");
        }
    });
}

pub(crate) fn a_stale_object_under_a_guard_is_counted_by_its_locker() {
    block_on(async {
        let locker = Locker::connect("memory:").await.expect("a locker");
        let (all, _dir) = everywhere().await;
        for objects in &all {
            let first = locker.mutex("a").lock().await.expect("locked");
            let later = first.token().plus(1).expect("not the last");
            objects.put(&Path::from("a"), "later", &later).await.expect("written");
            let refused = objects.put(&Path::from("a"), "first", &first).await.expect_err("too late");
            assert_eq!(refused.stale(), Some(&Stale { resource: "a".to_owned(), token: first.token(), seen: later }));
        }
        assert_eq!(locker.stats().stale, all.len() as u64);
    });
}

/// Numbers that look like chance.
fn random(below: u64) -> u64 {
    RandomState::new().hash_one(()) % below
}

pub(crate) fn of_many_writers_the_one_with_the_largest_token_has_the_last_word() {
    block_on(async {
        let (all, _dir) = everywhere().await;
        for objects in all {
            let at = Path::from("a");
            let over = Arc::new(AtomicBool::new(false));
            let reader = tokio::spawn(reads_never_go_back(objects.clone(), at.clone(), Arc::clone(&over)));
            let mut writers = JoinSet::new();
            for _ in 0..8 {
                let (objects, at) = (objects.clone(), at.clone());
                writers.spawn(async move {
                    let mut largest = 0;
                    for round in 0..50 {
                        let n = round * 10 + random(50);
                        largest = largest.max(n);
                        if let Err(refused) = objects.put(&at, &format!("by {n}"), &token(n)).await {
                            let Stale { token, seen, .. } = refused.stale().unwrap_or_else(|| panic!("{refused}"));
                            assert!(token.get() == n && *seen > *token);
                        }
                        if let (Objects::Versions(versions), 0) = (&objects, n % 5) {
                            versions.prune(&at).await.expect("pruned");
                        }
                    }
                    largest
                });
            }
            let largest = must("all writers", writers.join_all()).await.into_iter().max().expect("eight of them");
            over.store(true, Ordering::Relaxed);
            must("the reader", reader).await.expect("no panic");
            assert_eq!(objects.get(&at).await, some(largest, &format!("by {largest}")), "{objects:?}");
            let stats = objects.stats();
            assert!(stats.accepted + stats.stale == 400 && stats.stale > 0, "{stats:?}");
        }
    });
}

pub(crate) fn of_two_who_write_first_the_larger_token_has_the_last_word() {
    block_on(async {
        let (all, _dir) = everywhere().await;
        for objects in all {
            for round in 0..50 {
                let at = Path::from(format!("new/{round}"));
                let mut race = JoinSet::new();
                // Who starts first changes from round to round.
                for n in if round % 2 == 0 { [5, 9] } else { [9, 5] } {
                    let (objects, at) = (objects.clone(), at.clone());
                    race.spawn(async move { objects.put(&at, &format!("by {n}"), &token(n)).await.is_ok() || n == 5 });
                }
                assert!(race.join_all().await.into_iter().all(|right| right), "only the smaller one may be refused");
                assert_eq!(objects.get(&at).await, some(9, "by 9"), "{objects:?}");
            }
        }
    });
}

async fn reads_never_go_back(objects: Objects, at: Path, over: Arc<AtomicBool>) {
    let mut last = 0;
    while !over.load(Ordering::Relaxed) {
        if let Some((n, content)) = objects.get(&at).await {
            assert!(n >= last, "{n} after {last} in {objects:?}");
            assert_eq!(content, format!("by {n}"));
            last = n;
        } else {
            assert_eq!(last, 0, "what has been read is not gone, in {objects:?}");
        }
        tokio::task::yield_now().await;
    }
}

pub(crate) fn a_store_that_breaks_a_promise_is_refused() {
    block_on(async {
        let dir = tempfile::tempdir().expect("a directory");
        let files: Arc<dyn ObjectStore> = Arc::new(LocalFileSystem::new_with_prefix(dir.path()).expect("a store"));
        let flaws = [
            (Flaw::TagsOfContent, "a new ETag for the same content"),
            (Flaw::UpdatesAnything, "replace only what was read"),
            (Flaw::CreatesOver, "do not overwrite"),
            (Flaw::DropsAttributes, "attributes"),
            (Flaw::NoTags, "ETags"),
        ];
        let odd = flaws.map(|(flaw, what)| (Arc::new(Odd::new(flaw)) as Arc<dyn ObjectStore>, what));
        for (store, what) in odd.into_iter().chain([(files, "attributes")]) {
            let refused = InPlace::open(Arc::clone(&store), &Path::from("scratch")).await.expect_err(what);
            assert!(matches!(refused, Error::Request(tenure::Error::Unsupported { .. })), "{refused}");
            assert!(refused.to_string().contains(what) && refused.to_string().contains("Versions"), "{refused}");
            let left: Vec<_> = store.list(None).try_collect().await.expect("listed");
            assert!(left.is_empty(), "{left:?}");
        }
    });
}

pub(crate) fn what_was_not_written_through_the_fence_is_left_alone() {
    block_on(async {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let objects = InPlace::open(Arc::clone(&store), &Path::from("scratch")).await.expect("a sound store");
        let at = Path::from("a");
        store.put(&at, "theirs".into()).await.expect("written");
        for odd in [None, Some(""), Some("x"), Some("-1"), Some("9223372036854775808")] {
            if let Some(odd) = odd {
                let attributes = Attributes::from_iter([(Attribute::Metadata("tenuretoken".into()), odd)]);
                store.put_opts(&at, "theirs".into(), attributes.into()).await.expect("written");
            }
            let refused = objects.put(&at, "ours".into(), &token(i64::MAX as u64)).await.expect_err("no token");
            assert!(matches!(refused, Error::Request(tenure::Error::Config { .. })), "{refused}");
            objects.delete(&at, &token(i64::MAX as u64)).await.expect_err("no token");
            objects.get(&at).await.expect_err("no token");
            assert_eq!(store.get(&at).await.expect("there").bytes().await.expect("read"), "theirs");
        }
        assert_eq!(objects.stats().accepted, 0);
    });
}

pub(crate) fn attributes_of_the_user_stay_beside_the_token() {
    block_on(async {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let objects = InPlace::open(Arc::clone(&store), &Path::from("scratch")).await.expect("a sound store");
        let at = Path::from("a");
        let attributes = Attributes::from_iter([(Attribute::ContentType, "application/json")]);
        objects.put_with(&at, "{}".into(), attributes, &token(5)).await.expect("written");
        let (n, object) = objects.get(&at).await.expect("read").expect("there");
        assert_eq!(n, token(5));
        assert_eq!(object.attributes.get(&Attribute::ContentType).expect("kept").as_ref(), "application/json");
        objects.put(&at, "{}".into(), &token(4)).await.expect_err("too late");
    });
}

pub(crate) fn conflicts_without_end_are_an_error() {
    block_on(async {
        let store = Arc::new(Odd::new(Flaw::None));
        let objects = InPlace::open(Arc::clone(&store) as Arc<dyn ObjectStore>, &Path::from("scratch")).await.expect("sound");
        store.hopeless.store(true, Ordering::Relaxed);
        let before = store.puts.load(Ordering::Relaxed);
        let refused = must("an end", objects.put(&Path::from("a"), "x".into(), &token(5))).await.expect_err("always overtaken");
        assert!(matches!(refused, Error::Store(object_store::Error::Precondition { .. })), "{refused}");
        assert!((2..=100).contains(&(store.puts.load(Ordering::Relaxed) - before)));
        assert_eq!(objects.stats().accepted, 0);
    });
}

pub(crate) fn versions_are_named_in_order_and_all_but_the_last_two_are_pruned() {
    block_on(async {
        let dir = tempfile::tempdir().expect("a directory");
        let files: Arc<dyn ObjectStore> = Arc::new(LocalFileSystem::new_with_prefix(dir.path()).expect("a store"));
        for store in [files, Arc::new(InMemory::new())] {
            let (objects, at) = (Versions::new(Arc::clone(&store)), Path::from("a"));
            let names = async || {
                let list: Vec<_> = store.list(Some(&at)).try_collect().await.expect("listed");
                let mut names: Vec<String> = list.into_iter().map(|meta| meta.location.to_string()).collect();
                names.sort();
                names
            };
            // Not of the form of a version.
            for odd in ["a/0000000000000000099-0000000000.txt", "a/99-0", "a/readme", "a/0000000000000000099-0000000000/b"] {
                store.put(&Path::from(odd), "x".into()).await.expect("written");
            }
            for n in [5, 5, 10, LARGE[5]] {
                objects.put(&at, format!("by {n}").into(), &token(n)).await.expect("written");
            }
            objects.delete(&at, &token(LARGE[5])).await.expect("deleted");
            let versions = [
                "a/0000000000000000005-0000000000",
                "a/0000000000000000005-0000000001",
                "a/0000000000000000010-0000000000",
                "a/9223372036854775807-0000000000",
                "a/9223372036854775807-0000000001.gone",
            ];
            let ours: Vec<String> = names().await.into_iter().filter(|name| versions.contains(&name.as_str())).collect();
            assert_eq!(ours, versions);
            assert_eq!(objects.prune(&at).await.expect("pruned"), 3);
            assert_eq!(objects.prune(&at).await.expect("pruned"), 0);
            assert_eq!(names().await.len(), 6, "the last two, and what is not ours");
            let late = objects.put(&at, "late".into(), &token(10)).await.expect_err("too late");
            assert_eq!(late.stale(), Some(&stale("a", 10, LARGE[5])), "the fence stays");
        }
    });
}
