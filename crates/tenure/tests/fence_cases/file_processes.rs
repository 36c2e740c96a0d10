//! Fences for local files, with processes that are killed, stopped, and race each other.

use std::fs::{self, Permissions};
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use tenure::fence::file::{Error, Trouble};

use super::file::{dir, fence_of, fenced, mark, names};
use super::redis::token;
use tenure_testkit::player::Player;
use tenure_testkit::{Signal, eventually, signal, stop};

/// Large enough to be killed in the middle of.
const LINES: usize = 20_000;

fn content(n: u64) -> Vec<u8> {
    format!("{n:019}\n").repeat(LINES).into_bytes()
}

/// Whose content it is, all of it.
#[track_caller]
fn whose(content: &[u8]) -> u64 {
    let first = content.split(|b| *b == b'\n').next().expect("a line");
    let n = str::from_utf8(first).expect("text").parse().expect("a number");
    assert!(content == self::content(n), "{} bytes of {n} are not the whole", content.len());
    n
}

/// The roles of this program's children.
pub(crate) fn play(role: &str) {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let file = fenced(Path::new(&args[0]));
    let number = |i: usize| args[i].parse::<u64>().expect("a number");
    let said = |written: Result<(), Error>| match written {
        Ok(()) => "written".to_owned(),
        Err(Error::Stale(stale)) => format!("stale {} {}", stale.token, stale.seen),
        Err(Error::Store(Trouble::Io { doing, source, .. })) => format!("{doing}: {:?}", source.kind()),
        Err(other) => panic!("{other}"),
    };
    match role {
        // Writes with one token after the other, until it is killed.
        "file-always" => {
            println!("ready");
            for n in number(1).. {
                let written = said(file.write(&content(n), &token(n)));
                assert!(written == "written" || written.starts_with("stale"), "{written}");
            }
        }
        // Writes with every other token, and says how often it was let through.
        "file-race" => {
            println!("ready");
            std::io::stdin().lock().read_line(&mut String::new()).expect("told");
            let tokens = (number(1)..number(2)).step_by(2);
            println!("{}", tokens.filter(|n| said(file.write(&content(*n), &token(*n))) == "written").count());
        }
        // Writes once when it is told to.
        "file-once" => {
            println!("ready");
            std::io::stdin().lock().read_line(&mut String::new()).expect("told");
            println!("{}", said(file.write(&content(number(1)), &token(number(1)))));
        }
        other => panic!("no such role: {other}"),
    }
    std::io::stdout().flush().expect("said");
}

pub(crate) fn writers_killed_at_any_moment_leave_whole_files_and_fences_that_stand() {
    let dir = dir();
    let mut cut_short = 0;
    for round in 0..100_u64 {
        // Each name is new for four rounds, so that many die while the fence itself is being made.
        let path = dir.path().join(format!("state{}", round / 4));
        // Whose content it is and how high the fence is, 0 while there is none.
        let state = || {
            let fence = if fence_of(&path).exists() { mark(&path) } else { 0 };
            (fs::read(&path).map_or(0, |content| whose(&content)), fence)
        };
        let before = state();
        // Where the last one was cut short.
        let mut writer = Player::start("file-always", path.to_str().expect("text"), &[&before.1.max(1).to_string()]);
        assert_eq!(writer.line(), "ready");
        std::thread::sleep(Duration::from_micros(RandomState::new().hash_one(round) % 30_000));
        writer.kill();
        cut_short += usize::from(names(dir.path()).iter().any(|name| name.ends_with(".part")));
        let (content, fence) = state();
        assert!(content >= before.0 && fence >= before.1, "{content} {fence} after {before:?}");
        // A fence may be ahead of its file by the one write that was cut short, and never behind.
        assert!(content == fence || content + 1 == fence, "{content} {fence}");
        if round % 4 == 3 {
            let late = fenced(&path).write(b"late", &token(fence.saturating_sub(1)));
            assert_eq!(late.is_err(), fence > 0, "the fence stands");
            fenced(&path).write(&self::content(fence), &token(fence)).expect("written");
            let left: Vec<String> = names(dir.path()).into_iter().filter(|name| name.ends_with(".part")).collect();
            assert!(left.is_empty(), "{left:?}");
        }
    }
    assert!(cut_short > 0, "some were killed in the middle");
}

pub(crate) fn of_two_processes_no_lower_token_overwrites_a_higher_one() {
    let dir = dir();
    let path = dir.path().join("state");
    let start = |first: &str| Player::start("file-race", path.to_str().expect("text"), &[first, "61"]);
    let mut writers = [start("1"), start("2")];
    for writer in &mut writers {
        assert_eq!(writer.line(), "ready");
    }
    for writer in &mut writers {
        writer.tell("go");
    }
    let mut last = 0;
    eventually("both are done", || {
        if let Ok(content) = fs::read(&path) {
            let n = whose(&content);
            assert!(n >= last, "{n} after {last}");
            last = n;
        }
        writers.iter_mut().all(|writer| writer.child.try_wait().expect("asked").is_some())
    });
    let written: u64 = writers.iter_mut().map(|writer| writer.line().parse::<u64>().expect("a number")).sum();
    assert!((30..=60).contains(&written), "{written}");
    assert_eq!((whose(&fs::read(&path).expect("read")), mark(&path), names(dir.path()).len()), (60, 60, 2));
}

pub(crate) fn a_writer_that_was_stopped_is_stale_when_it_wakes_up() {
    let dir = dir();
    let path = dir.path().join("state");
    let mut slow = Player::start("file-once", path.to_str().expect("text"), &["5"]);
    assert_eq!(slow.line(), "ready");
    stop(slow.child.id());
    slow.tell("write");
    fenced(&path).write(&content(9), &token(9)).expect("written meanwhile");
    signal(slow.child.id(), Signal::CONT);
    assert_eq!(slow.line(), "stale 5 9");
    assert_eq!((whose(&fs::read(&path).expect("read")), mark(&path), names(dir.path()).len()), (9, 9, 2));
}

pub(crate) fn writers_stopped_at_any_moment_do_not_overwrite() {
    let dir = dir();
    let path = dir.path().join("state");
    let hasty = fenced(&path).patience(Duration::from_millis(20));
    for round in 0..20_u64 {
        let base = 1_000_000 * round;
        let mut slow = Player::start("file-always", path.to_str().expect("text"), &[&(base + 1).to_string()]);
        assert_eq!(slow.line(), "ready");
        std::thread::sleep(Duration::from_micros(RandomState::new().hash_one(round) % 20_000));
        stop(slow.child.id());
        let largest = base + 999_999;
        // Stopped at the fence it keeps others out, for as long as they are patient.
        let busy = match hasty.write(&content(largest), &token(largest)) {
            Ok(()) => false,
            Err(Error::Store(Trouble::Busy { .. })) => true,
            Err(other) => panic!("{other}"),
        };
        signal(slow.child.id(), Signal::CONT);
        if busy {
            fenced(&path).write(&content(largest), &token(largest)).expect("written");
        }
        // It goes on to write, and is refused.
        let accessed = || fs::metadata(dir.path()).expect("there").mtime_nsec();
        let before = accessed();
        eventually("it tries again", || accessed() != before);
        assert_eq!((whose(&fs::read(&path).expect("read")), mark(&path)), (largest, largest));
        slow.kill();
    }
}

pub(crate) fn a_directory_that_may_not_be_written_is_named() {
    let dir = dir();
    let path = dir.path().join("state");
    fenced(&path).write(&content(5), &token(5)).expect("written");
    fs::set_permissions(dir.path(), Permissions::from_mode(0o555)).expect("set");
    // Nothing is forbidden to root, so that somebody else has to try.
    let (text, is_root) = (path.to_str().expect("text"), fs::metadata(&path).expect("there").uid() == 0);
    let mut writer =
        if is_root { Player::start_as(65534, "file-once", text, &["9"]) } else { Player::start("file-once", text, &["9"]) };
    assert_eq!(writer.line(), "ready");
    writer.tell("write");
    assert_eq!(writer.line(), "creating: PermissionDenied");
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).expect("set");
    assert_eq!((whose(&fs::read(&path).expect("read")), mark(&path), names(dir.path()).len()), (5, 5, 2));
}
