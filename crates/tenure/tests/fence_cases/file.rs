//! Fences for local files, within one process.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::hash::{BuildHasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tenure::Locker;
use tenure::fence::file::{Error, FencedFile, Trouble};

use super::redis::{LARGE, stale, token};
use tenure_testkit::locker::block_on;

pub(super) fn dir() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

pub(super) fn fenced(path: &Path) -> FencedFile {
    FencedFile::new(path).expect("a file").patience(Duration::from_secs(60))
}

/// What is in a directory, in order.
pub(super) fn names(dir: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("listed").file_name().to_string_lossy().into_owned();
    let mut names: Vec<String> = fs::read_dir(dir).expect("listed").map(name).collect();
    names.sort();
    names
}

/// Where the fence of a file is.
pub(super) fn fence_of(path: &Path) -> PathBuf {
    let name = [b".", path.file_name().expect("a name").as_bytes(), b".fence"].concat();
    path.with_file_name(OsStr::from_bytes(&name))
}

/// The token in a fence.
pub(super) fn mark(path: &Path) -> u64 {
    let text = fs::read_to_string(fence_of(path)).expect("a fence");
    let (first, second) = text.trim_end().split_once(' ').expect("two numbers");
    assert_eq!((first, first.len()), (second, 19), "a whole fence");
    first.parse().expect("a number")
}

fn trouble(error: Error) -> Trouble {
    match error {
        Error::Store(trouble) => trouble,
        other => panic!("not the file's: {other}"),
    }
}

pub(crate) fn a_file_is_replaced_unless_a_larger_token_was_there() {
    let dir = dir();
    let path = dir.path().join("state");
    let file = fenced(&path);
    for n in [0, 0, 5, 5, 9, 10].into_iter().chain(LARGE) {
        file.write(format!("by {n}").as_bytes(), &token(n)).expect("written");
        assert_eq!((fs::read_to_string(&path).expect("read"), mark(&path)), (format!("by {n}"), n));
    }
    let (last, before) = (LARGE[5], LARGE[4]);
    let resource = path.to_str().expect("text");
    for n in [before, 9, 0] {
        let late = file.write(b"late", &token(n)).expect_err("too late");
        assert_eq!(late.stale(), Some(&stale(resource, n, last)));
        let late = file.remove(&token(n)).expect_err("too late");
        assert_eq!(late.stale(), Some(&stale(resource, n, last)));
    }
    assert_eq!(fs::read_to_string(&path).expect("read"), format!("by {last}"));
    fenced(&dir.path().join("other")).write(b"x", &token(1)).expect("another file has a fence of its own");
    let refused = file.write(b"x", &token(1 << 63)).expect_err("no such token");
    assert!(matches!(refused, Error::Request(_)) && refused.to_string().contains("9223372036854775807"), "{refused}");
    assert_eq!((file.stats().accepted, file.stats().stale), (12, 6));
    assert_eq!(names(dir.path()), [".other.fence", ".state.fence", "other", "state"], "nothing is left over");
}

pub(crate) fn removing_a_file_keeps_its_fence() {
    let dir = dir();
    let path = dir.path().join("state");
    let file = fenced(&path);
    file.write(b"x", &token(5)).expect("written");
    assert!(file.remove(&token(7)).expect("removed"));
    assert!(!file.remove(&token(7)).expect("removed already"));
    file.write(b"back again", &token(6)).expect_err("too late");
    assert_eq!(names(dir.path()), [".state.fence"]);
    file.write(b"new", &token(7)).expect("written");
    assert!(!fenced(&dir.path().join("never")).remove(&token(3)).expect("nothing to remove"));
    fenced(&dir.path().join("never")).write(b"x", &token(2)).expect_err("too late");
}

pub(crate) fn who_raised_the_fence_and_died_can_write_again() {
    let dir = dir();
    let path = dir.path().join("state");
    let file = fenced(&path);
    file.write(b"old", &token(5)).expect("written");
    // As it is between the fence and the file.
    fs::write(fence_of(&path), format!("{:019} {:019}\n", 9, 9)).expect("written");
    let late = file.write(b"late", &token(8)).expect_err("too late");
    assert_eq!(late.stale().expect("stale").seen, token(9));
    file.write(b"new", &token(9)).expect("written");
    assert_eq!(fs::read(&path).expect("read"), b"new");
}

pub(crate) fn a_damaged_fence_lets_nobody_through() {
    let dir = dir();
    let path = dir.path().join("state");
    let file = fenced(&path);
    file.write(b"old", &token(5)).expect("written");
    let good = fs::read(fence_of(&path)).expect("read");
    let half = [&good[..20], b"0000000000000000009\n"].concat();
    let negative = b"-000000000000000001 -000000000000000001\n".to_vec();
    let long = [&good[..], b"x"].concat();
    let too_large = b"9999999999999999999 9999999999999999999\n".to_vec();
    for odd in [
        vec![],
        vec![0; 40],
        b"garbage".to_vec(),
        b"5\n".to_vec(),
        good[..39].to_vec(),
        vec![0xff; 40],
        half,
        negative,
        long,
        too_large,
    ] {
        fs::write(fence_of(&path), &odd).expect("written");
        for refused in
            [file.write(b"new", &token(LARGE[5])).expect_err("damaged"), file.remove(&token(LARGE[5])).expect_err("damaged")]
        {
            assert!(refused.to_string().contains(".state.fence") && refused.to_string().contains("damaged"), "{refused}");
            assert!(matches!(trouble(refused), Trouble::Damaged { .. }), "{odd:?}");
        }
        assert_eq!(fs::read(fence_of(&path)).expect("read"), odd, "and is not repaired by guessing");
    }
    assert_eq!((fs::read(&path).expect("read"), names(dir.path()).len()), (b"old".to_vec(), 2));
    fs::write(fence_of(&path), good).expect("written");
    file.write(b"late", &token(4)).expect_err("too late");
    file.write(b"new", &token(5)).expect("written");
}

pub(crate) fn permissions_are_kept() {
    let dir = dir();
    let path = dir.path().join("state");
    let file = fenced(&path);
    let mode = || fs::metadata(&path).expect("there").mode() & 0o7777;
    file.write(b"x", &token(1)).expect("written");
    let usual = dir.path().join("usual");
    File::create(&usual).expect("created");
    assert_eq!(mode(), fs::metadata(&usual).expect("there").mode() & 0o7777, "a new file is like any other");
    for (given, kept) in [(0o600, 0o600), (0o640, 0o640), (0o777, 0o777), (0o444, 0o444), (0o4755, 0o755)] {
        fs::set_permissions(&path, Permissions::from_mode(given)).expect("set");
        file.write(b"y", &token(1)).expect("written");
        assert_eq!(mode(), kept);
    }
}

pub(crate) fn waiting_for_other_writers_has_an_end() {
    let dir = dir();
    let path = dir.path().join("state");
    let file = fenced(&path);
    file.write(b"old", &token(5)).expect("written");
    let held = OpenOptions::new().write(true).open(fence_of(&path)).expect("a fence");
    held.lock().expect("locked");
    let hasty = file.clone().patience(Duration::from_millis(50));
    let asked = Instant::now();
    for refused in [hasty.write(b"new", &token(9)).expect_err("busy"), hasty.remove(&token(9)).expect_err("busy")] {
        assert!(refused.to_string().contains("50ms"), "{refused}");
        assert!(matches!(trouble(refused), Trouble::Busy { .. }));
    }
    assert!(asked.elapsed() >= Duration::from_millis(100), "as long as it was told to");
    assert_eq!((fs::read(&path).expect("read"), mark(&path)), (b"old".to_vec(), 5));
    // Who is patient gets in as soon as the other one is gone.
    std::thread::scope(|scope| {
        let patient = scope.spawn(|| file.write(b"new", &token(9)));
        drop(held);
        patient.join().expect("no panic").expect("written");
    });
    assert_eq!(names(dir.path()).len(), 2);
}

pub(crate) fn what_the_dead_have_left_goes_and_what_the_living_write_stays() {
    let dir = dir();
    let path = dir.path().join("state");
    let part = |n: u32| dir.path().join(format!(".state.{n}.part"));
    for n in [0, 1, 7, 63] {
        fs::write(part(n), "left over").expect("written");
    }
    // Of others, and none of ours to remove.
    let others = [".state.64.part", ".state.x.part", ".state.part", ".states.0.part", "state.0.part"];
    for other in others {
        fs::write(dir.path().join(other), "theirs").expect("written");
    }
    let living = File::create(part(3)).expect("created");
    living.lock().expect("locked");
    fenced(&path).write(b"new", &token(5)).expect("written");
    let mut left = [".state.3.part", ".state.fence", "state"].to_vec();
    left.extend(others);
    left.sort_unstable();
    assert_eq!(names(dir.path()), left);
    drop(living);
    fenced(&path).remove(&token(5)).expect("removed");
    assert!(!part(3).exists());
}

pub(crate) fn names_may_be_odd() {
    let dir = dir();
    let long = "n".repeat(FencedFile::MAX_NAME);
    let odd: [&[u8]; 10] = [
        b"a b",
        b"line\nbreak",
        b"-rf",
        b"*?[",
        b"\"'$x",
        "\u{fc}\u{1f512}".as_bytes(),
        b"\xff\xfe",
        b".hidden",
        b"x.part",
        long.as_bytes(),
    ];
    for name in odd {
        let path = dir.path().join(OsStr::from_bytes(name));
        let file = fenced(&path);
        file.write(b"x", &token(5)).expect("written");
        assert_eq!((file.path(), fs::read(&path).expect("read"), mark(&path)), (path.clone(), b"x".to_vec(), 5));
        file.write(b"y", &token(4)).expect_err("too late");
    }
    assert_eq!(names(dir.path()).len(), 2 * odd.len());
}

pub(crate) fn what_cannot_be_fenced_is_refused_with_what_can() {
    let dir = dir();
    let at = |name: &str| dir.path().join(name);
    let long = "n".repeat(FencedFile::MAX_NAME + 1);
    for path in ["".into(), "/".into(), "..".into(), at(".."), at(".x.fence"), at(".x.0.part"), at(&long)] {
        let refused = FencedFile::new(&path).expect_err("no such file");
        assert!(matches!(refused, tenure::Error::Config { .. }), "{refused}");
    }
    fs::create_dir(at("dir")).expect("created");
    fs::write(at("real"), "theirs").expect("written");
    std::os::unix::fs::symlink(at("real"), at("link")).expect("linked");
    std::os::unix::fs::symlink(at("nowhere"), at("dangling")).expect("linked");
    for (name, problem) in [("dir", "no regular file"), ("link", "symbolic link"), ("dangling", "symbolic link")] {
        let refused = fenced(&at(name)).write(b"x", &token(5)).expect_err("no regular file");
        assert!(matches!(refused, Error::Request(tenure::Error::Config { .. })), "{refused}");
        assert!(refused.to_string().contains(problem), "{refused}");
    }
    let refused = trouble(fenced(&at("no/such/dir")).write(b"x", &token(5)).expect_err("no directory"));
    assert!(matches!(refused, Trouble::Io { .. }) && refused.to_string().contains("no/such"), "{refused}");
    assert_eq!((names(dir.path()).len(), fs::read(at("real")).expect("read")), (4, b"theirs".to_vec()));
}

pub(crate) fn a_stale_file_under_a_guard_is_counted_by_its_locker() {
    let dir = dir();
    let file = fenced(&dir.path().join("state"));
    block_on(async {
        let locker = Locker::connect("memory:").await.expect("a locker");
        let guard = locker.mutex("a").lock().await.expect("locked");
        file.write(b"later", &guard.token().plus(1).expect("not the last")).expect("written");
        let refused = file.write(b"late", &guard).expect_err("too late");
        assert_eq!(refused.stale().expect("stale").token, guard.token());
        assert_eq!((locker.stats().stale, file.stats().stale), (1, 1));
    });
}

pub(crate) fn of_many_threads_the_largest_token_has_the_last_word() {
    let dir = dir();
    let path = dir.path().join("state");
    let file = fenced(&path);
    let over = AtomicBool::new(false);
    let largest = std::thread::scope(|scope| {
        let writer = || {
            let mut largest = 0;
            for round in 0..25 {
                let n = round * 10 + RandomState::new().hash_one(()) % 50;
                largest = largest.max(n);
                if let Err(refused) = file.write(format!("{n:01000}").as_bytes(), &token(n)) {
                    assert!(refused.stale().is_some_and(|stale| stale.seen > stale.token), "{refused}");
                }
            }
            largest
        };
        let writers = [(); 8].map(|()| scope.spawn(writer));
        let reader = scope.spawn(|| {
            let mut last = 0;
            while !over.load(Ordering::Relaxed) {
                let Ok(text) = fs::read_to_string(&path) else { continue };
                let n: u64 = text.parse().expect("a number");
                assert!(text.len() == 1000 && n >= last, "{n} after {last}");
                last = n;
            }
        });
        let largest = writers.map(|writer| writer.join());
        over.store(true, Ordering::Relaxed);
        reader.join().expect("no panic");
        largest.into_iter().map(|largest| largest.expect("no panic")).max().expect("eight")
    });
    assert_eq!((fs::read_to_string(&path).expect("read").parse::<u64>().expect("a number"), mark(&path)), (largest, largest));
    assert_eq!(file.stats().accepted + file.stats().stale, 200);
    assert_eq!(names(dir.path()).len(), 2);
}

pub(crate) fn writers_do_not_take_each_other_for_dead() {
    // In memory, where a disk does not keep them apart.
    let dir = tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| dir());
    let file = fenced(&dir.path().join("state"));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..1000).for_each(|_| file.write(b"x", &token(5)).expect("written")));
        }
    });
    assert_eq!((file.stats().accepted, names(dir.path()).len()), (8000, 2));
}
