//! What another user has put in place of a fenced file, its fence or its parts.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tenure::fence::file::{Error, FencedFile, Trouble};

use super::file::{dir, fence_of, fenced, mark, names};
use super::redis::token;

/// Puts something there that is no file.
type Plant = fn(&Path);

fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o666), 0).expect("a pipe");
}

/// A link to something beside it, outside of the names of any fence.
fn link_to(path: &Path, make: impl FnOnce(&Path)) {
    let victim = path.with_file_name("victim");
    make(&victim);
    symlink(&victim, path).expect("linked");
}

/// What a fence holds.
const FENCE: &str = "0000000000000000001 0000000000000000001\n";

const PLANTS: [(&str, Plant); 6] = [
    ("a named pipe", fifo),
    ("a link to a named pipe", |path| link_to(path, fifo)),
    ("a link to nothing", |path| link_to(path, |_| {})),
    ("a link to a file", |path| link_to(path, |victim| fs::write(victim, FENCE).expect("written"))),
    ("a directory", |path| fs::create_dir(path).expect("a directory")),
    ("a socket", |path| drop(UnixListener::bind(path).expect("a socket"))),
];

/// Does something that might hang, and says so if it does.
#[track_caller]
fn ends<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || done.send(work()));
    ended.recv_timeout(Duration::from_secs(30)).unwrap_or_else(|_| panic!("hangs: {what}"))
}

fn write(file: &FencedFile, what: &str, n: u64) -> Result<(), Error> {
    let file = file.clone();
    ends(what, move || file.write(b"new", &token(n)))
}

pub(crate) fn a_fence_that_is_no_file_is_told_and_lets_nobody_through() {
    for (what, plant) in PLANTS {
        let dir = dir();
        let path = dir.path().join("state");
        fs::write(&path, "old").expect("written");
        plant(&fence_of(&path));
        let before = names(dir.path());
        let file = fenced(&path).patience(Duration::from_secs(1));
        let removing = file.clone();
        let refused = [write(&file, what, 5).err(), ends(what, move || removing.remove(&token(5)).err())];
        for refused in refused.map(|refused| refused.expect(what)) {
            assert!(matches!(refused, Error::Store(Trouble::Damaged { .. })), "{what}: {refused}");
            assert!(refused.to_string().contains(".state.fence"), "{what}: {refused}");
        }
        assert_eq!((fs::read(&path).expect("read"), names(dir.path())), (b"old".to_vec(), before), "{what}");
        let victim = dir.path().join("victim");
        if victim.is_file() {
            assert_eq!(fs::read_to_string(victim).expect("read"), FENCE, "{what}");
        }
    }
}

pub(crate) fn a_part_that_is_no_file_is_left_where_it_is() {
    for (what, plant) in PLANTS {
        let dir = dir();
        let path = dir.path().join("state");
        let part = dir.path().join(".state.0.part");
        plant(&part);
        let planted = fs::symlink_metadata(&part).expect("there").ino();
        let file = fenced(&path);
        write(&file, what, 5).expect(what);
        write(&file, what, 6).expect(what);
        write(&file, what, 5).expect_err("too late");
        assert_eq!((fs::read(&path).expect("read"), mark(&path)), (b"new".to_vec(), 6), "{what}");
        assert_eq!(fs::symlink_metadata(&part).expect("there").ino(), planted, "{what}");
    }
}

pub(crate) fn no_room_for_a_part_is_told_in_time() {
    let dir = dir();
    let path = dir.path().join("state");
    (0..64).for_each(|n| fifo(&dir.path().join(format!(".state.{n}.part"))));
    let file = fenced(&path).patience(Duration::from_millis(50));
    let refused = write(&file, "all parts are taken", 5).expect_err("no room");
    assert!(matches!(refused, Error::Store(Trouble::Busy { .. })), "{refused}");
    assert!(!path.exists());
}

pub(crate) fn a_target_that_is_no_file_is_refused_and_left_alone() {
    for (what, plant) in PLANTS {
        let dir = dir();
        let path = dir.path().join("state");
        plant(&path);
        let before = (fs::symlink_metadata(&path).expect("there").ino(), names(dir.path()));
        let file = fenced(&path);
        let removing = file.clone();
        for refused in [write(&file, what, 5).err(), ends(what, move || removing.remove(&token(5)).err())] {
            assert!(matches!(refused, Some(Error::Request(tenure::Error::Config { .. }))), "{what}: {refused:?}");
        }
        assert_eq!((fs::symlink_metadata(&path).expect("there").ino(), names(dir.path())), before, "{what}");
    }
}

pub(crate) fn only_who_may_write_the_file_can_lock_its_fence() {
    for (given, fence) in [(None, 0o600), (Some(0o644), 0o600), (Some(0o664), 0o660), (Some(0o444), 0o600), (Some(0o666), 0o666)]
    {
        let dir = dir();
        let path = dir.path().join("state");
        if let Some(mode) = given {
            fs::write(&path, "old").expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
        }
        fenced(&path).write(b"new", &token(5)).expect("written");
        let umask_keeps_the_group_out = fs::metadata(&path).expect("there").mode() & 0o022 == 0;
        let found = fs::metadata(fence_of(&path)).expect("a fence").mode() & 0o777;
        if given.is_some() || umask_keeps_the_group_out {
            assert_eq!(format!("{found:o}"), format!("{fence:o}"), "{given:?}");
        }
        fenced(&path).write(b"newer", &token(6)).expect("written");
    }
}
