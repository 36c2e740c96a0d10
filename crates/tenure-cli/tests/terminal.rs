//! `tenure run` at a terminal: the program owns it, Ctrl-C and Ctrl-Z reach it, and tenure keeps out of the way. And the bar of `tenure bench`.
#![cfg(target_os = "linux")]

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use tenure_testkit::command::{Running, Store, collect, is_dead, state};
use tenure_testkit::eventually;

/// A terminal with a person in front of it.
struct Screen {
    keys: File,
    device: File,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Screen {
    fn new() -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&master).expect("a terminal");
        unlockpt(&master).expect("a terminal");
        let path = ptsname(&master, Vec::new()).expect("a terminal");
        let path = std::ffi::OsStr::from_bytes(path.to_bytes());
        let noctty = i32::try_from(rustix::fs::OFlags::NOCTTY.bits()).expect("a flag");
        let device = OpenOptions::new().read(true).write(true).custom_flags(noctty).open(path).expect("a terminal");
        let keys = File::from(master);
        let seen = Arc::new(Mutex::new(Vec::new()));
        drop(collect(keys.try_clone().expect("a terminal"), &seen));
        Self { keys, device, seen }
    }

    fn stdio(&self) -> Stdio {
        self.device.try_clone().expect("a terminal").into()
    }

    /// `tenure` in a session of its own at this terminal.
    fn tenure<const N: usize>(&self, store: &Store, args: [&str; N]) -> Command {
        let mut command = Command::new("setsid");
        command.args(["--ctty", env!("CARGO_BIN_EXE_tenure")]).args(args).current_dir(store.path(""));
        command.env("TENURE_URL", store.url()).stdin(self.stdio()).stdout(self.stdio()).stderr(self.stdio());
        command
    }

    fn start<const N: usize>(&self, store: &Store, args: [&str; N]) -> Running {
        Running::new(&mut self.tenure(store, args))
    }

    fn typed(&mut self, keys: &[u8]) {
        self.keys.write_all(keys).expect("a terminal");
    }

    fn shows(&self, text: &str) -> bool {
        String::from_utf8_lossy(&self.seen.lock().expect("no panic")).contains(text)
    }
}

#[test]
fn the_program_reads_from_the_terminal() {
    let (store, mut screen) = (Store::new(), Screen::new());
    let script = "echo > ready; read line; echo $line > got; exit 4";
    let run = screen.start(&store, ["run", "x", "--", "sh", "-c", script]);
    store.written("ready");
    screen.typed(b"hello\n");
    assert_eq!(run.end().0, Some(4));
    assert_eq!(store.written("got"), "hello");
}

#[test]
fn a_program_in_a_pipeline_gets_the_terminal_when_it_asks_for_it() {
    let (store, mut screen) = (Store::new(), Screen::new());
    let script = "echo > ready; read line; echo $line > got; exit 4";
    let run = Running::new(screen.tenure(&store, ["run", "x", "--", "sh", "-c", script]).stdout(Stdio::piped()));
    store.written("ready");
    screen.typed(b"hello\n");
    assert_eq!(run.end().0, Some(4));
    assert_eq!(store.written("got"), "hello");
}

#[test]
fn ctrl_c_reaches_the_program() {
    let (store, mut screen) = (Store::new(), Screen::new());
    let script = "trap 'exit 9' INT; echo > ready; while :; do sleep 0.05; done";
    let run = screen.start(&store, ["run", "x", "--", "sh", "-c", script]);
    store.written("ready");
    screen.typed(b"\x03");
    assert_eq!(run.end().0, Some(9));
}

#[test]
fn ctrl_c_in_a_pipeline_reaches_the_program_through_tenure() {
    let (store, mut screen) = (Store::new(), Screen::new());
    let script = "trap 'exit 9' INT; echo > ready; while :; do sleep 0.05; done";
    let run = Running::new(screen.tenure(&store, ["run", "x", "--", "sh", "-c", script]).stdout(Stdio::piped()));
    store.written("ready");
    screen.typed(b"\x03");
    assert_eq!(run.end().0, Some(9));
}

#[test]
fn ctrl_z_stops_both_and_continuing_continues_both() {
    let (store, mut screen) = (Store::new(), Screen::new());
    let script = "echo $$ > pid; read line; echo $line > got; exit 4";
    let run = screen.start(&store, ["run", "x", "--", "sh", "-c", script]);
    let pid = store.pid("pid");
    for _ in 0..3 {
        screen.typed(b"\x1a");
        eventually("both to stop", || state(run.pid()) == Some('T') && state(pid) == Some('T'));
        run.signal(Signal::CONT);
        eventually("both to go on", || state(run.pid()) != Some('T') && state(pid) != Some('T'));
    }
    screen.typed(b"hello\n");
    assert_eq!(run.end().0, Some(4));
    assert_eq!(store.written("got"), "hello");
}

#[test]
fn a_program_that_was_stopped_for_longer_than_its_lease_never_runs_again() {
    let (store, mut screen) = (Store::new(), Screen::new());
    let script = "echo $$ > pid; read line; echo > ran";
    let run = screen.start(&store, ["run", "--lease", "2s", "x", "--", "sh", "-c", script]);
    let pid = store.pid("pid");
    screen.typed(b"\x1a");
    eventually("both to stop", || state(run.pid()) == Some('T') && state(pid) == Some('T'));
    eventually("the end of the lease", || !store.is_held("x"));
    screen.typed(b"hello\n");
    run.signal(Signal::CONT);
    assert_eq!(run.end().0, Some(76));
    assert!(is_dead(pid) && !store.path("ran").exists());
    eventually("the reason", || screen.shows("lost x"));
}

#[test]
fn waiting_shows_who_is_waited_for_and_the_line_is_erased() {
    let (store, mut screen) = (Store::new(), Screen::new());
    let holder = store.start(["run", "--note", "the backup", "x", "--", "sh", "-c", "echo > ready; exec sleep 1000"]);
    store.written("ready");
    let run = screen.start(&store, ["run", "x", "--", "true"]);
    eventually("the line", || screen.shows("waiting") && screen.shows("by the backup"));
    screen.typed(b"\x1a");
    eventually("it to stop", || state(run.pid()) == Some('T'));
    run.signal(Signal::CONT);
    eventually("it to go on", || state(run.pid()) != Some('T'));
    screen.typed(b"\x03");
    assert_eq!(run.end().0, Some(130));
    eventually("the line to be erased", || screen.shows("\r\x1b[K"));
    drop(holder);
}

#[test]
fn a_bench_shows_how_far_it_is() {
    let (store, screen) = (Store::new(), Screen::new());
    let run = screen.start(&store, ["bench", "--seconds", "0.6", "--only", "P1"]);
    assert_eq!(run.end().0, Some(0));
    eventually("a bar, and the table after it", || screen.shows("[####") && screen.shows(" %  P1: ") && screen.shows("CYCLES/S"));
}

#[test]
fn ctrl_c_ends_a_bench_with_all_its_processes() {
    let (store, mut screen) = (Store::new(), Screen::new());
    let run = screen.start(&store, ["bench", "--seconds", "600", "--only", "P4"]);
    eventually("P4 runs", || store.json(["ls", "--json"]) != serde_json::json!([]));
    screen.typed(b"\x03");
    assert_eq!(run.end().0, Some(130));
    assert_eq!(store.json(["ls", "--json"]), serde_json::json!([]));
}
