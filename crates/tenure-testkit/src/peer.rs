//! A peer: a program with the locks of another library, built by `interop/run`. It gets commands line by line.

use std::collections::{HashMap, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use tenure_lab::process::is_installed;

use crate::eventually;

/// However long a busy machine takes.
const DEADLINE: Duration = Duration::from_secs(60);

/// What a peer is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    Java,
    Python,
    Go,
    Node,
}

impl Language {
    pub fn name(self) -> &'static str {
        match self {
            Self::Java => "java",
            Self::Python => "python",
            Self::Go => "go",
            Self::Node => "node",
        }
    }

    /// What its tests lack: a server, a program that runs the peer, or the peer itself.
    pub fn missing(self, server: &str) -> Option<String> {
        let runs = match self {
            Self::Java => is_installed("java"),
            Self::Python => is_installed("python3"),
            Self::Go => true,
            Self::Node => is_installed("node"),
        };
        let built = built(&format!("{}.built", self.name())).exists();
        (!is_installed(server) || !runs || !built)
            .then(|| format!("{server} and the peer in {} (interop/run builds what it finds tools for)", self.name()))
    }

    fn command(self) -> Command {
        let with = |program: &str, args: &[&str], file: &str| {
            let mut command = Command::new(program);
            command.args(args).arg(built(file));
            command
        };
        match self {
            // Many start in a short time; none runs for long.
            Self::Java => with("java", &["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-jar"], "java/peer.jar"),
            Self::Python => with("python3", &[], "python/peer.py"),
            Self::Go => Command::new(built("go/peer")),
            Self::Node => with("node", &[], "node/peer.js"),
        }
    }
}

/// What `interop/run` has made.
fn built(file: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../../target/interop", file].iter().collect()
}

/// A running peer; killed on drop. One that lives in a static ends with its input.
#[derive(Debug)]
pub struct Peer {
    language: Language,
    child: Child,
    to: Mutex<ChildStdin>,
    heard: Arc<Heard>,
}

/// What a peer has said and the test has not read yet.
#[derive(Debug, Default)]
struct Heard {
    said: Mutex<Said>,
    more: Condvar,
}

#[derive(Debug, Default)]
struct Said {
    /// By actor. The first line, `ready`, is of none.
    answers: HashMap<String, VecDeque<String>>,
    errors: String,
    ended: bool,
}

impl Heard {
    fn note(&self, change: impl FnOnce(&mut Said)) {
        change(&mut self.said.lock().expect("not poisoned"));
        self.more.notify_all();
    }
}

impl Peer {
    /// Starts it and waits until it is connected.
    pub fn start(language: Language, args: &[&str]) -> Self {
        let mut command = language.command();
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?} does not start: {e}"));
        let heard = Arc::new(Heard::default());
        let (out, err) = (child.stdout.take().expect("a pipe"), child.stderr.take().expect("a pipe"));
        let listener = Arc::clone(&heard);
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let (actor, answer) = line.split_once(' ').unwrap_or(("", &line));
                listener.note(|said| said.answers.entry(actor.to_owned()).or_default().push_back(answer.to_owned()));
            }
            listener.note(|said| said.ended = true);
        });
        let listener = Arc::clone(&heard);
        std::thread::spawn(move || {
            for line in BufReader::new(err).lines().map_while(Result::ok) {
                listener.note(|said| said.errors += &format!("{line}\n"));
            }
        });
        let peer = Self { language, to: Mutex::new(child.stdin.take().expect("a pipe")), child, heard };
        assert_eq!(peer.wait_for("", "to start"), "ready");
        peer
    }

    /// A new actor, whose commands run in order, and concurrently with those of others.
    pub fn actor(&self) -> Actor<'_> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("a{}", NEXT.fetch_add(1, Ordering::Relaxed));
        Actor { peer: self, name, told: Mutex::default() }
    }

    /// As `kill -9`.
    pub fn kill(&mut self) {
        let _already_gone = self.child.kill();
        let _reaped = self.child.wait();
    }

    fn wait_for(&self, actor: &str, what: &str) -> String {
        let mut answer = None;
        let said = self.heard.said.lock().expect("not poisoned");
        let pending = |said: &mut Said| {
            answer = said.answers.get_mut(actor).and_then(VecDeque::pop_front);
            answer.is_none() && !said.ended
        };
        let (said, _) = self.heard.more.wait_timeout_while(said, DEADLINE, pending).expect("not poisoned");
        let (ended, errors) = (if said.ended { " and has ended" } else { "" }, said.errors.clone());
        // Others wait for it too.
        drop(said);
        answer.unwrap_or_else(|| panic!("{} did not answer{ended}: {what}\n{errors}", self.language.name()))
    }

    fn errors(&self) -> String {
        self.heard.said.lock().expect("not poisoned").errors.clone()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("{} said:\n{}", self.language.name(), self.errors());
        }
    }
}

/// One who takes locks in a peer: a thread there, where locks belong to threads.
#[derive(Debug)]
pub struct Actor<'a> {
    peer: &'a Peer,
    name: String,
    /// What is still to be answered.
    told: Mutex<VecDeque<String>>,
}

impl Actor<'_> {
    pub fn tell(&self, command: &str) {
        self.told.lock().expect("not poisoned").push_back(command.to_owned());
        let mut to = self.peer.to.lock().expect("not poisoned");
        writeln!(to, "{} {command}", self.name).unwrap_or_else(|e| panic!("{command}: {e}\n{}", self.peer.errors()));
    }

    /// What it answers to the oldest command that is still to be answered, which must have gone well.
    #[track_caller]
    pub fn answer(&self) -> String {
        let answer = self.result();
        answer.unwrap_or_else(|e| panic!("{} says: {e}\n{}", self.peer.language.name(), self.peer.errors()))
    }

    /// The same for a command that may fail.
    pub fn result(&self) -> Result<String, String> {
        let command = self.told.lock().expect("not poisoned").pop_front().expect("was told something");
        let answer = self.peer.wait_for(&self.name, &command);
        match answer.split_once(' ').unwrap_or((&answer, "")) {
            ("ok", value) => Ok(value.to_owned()),
            _ => Err(format!("{command}: {answer}")),
        }
    }

    /// Tells, and waits for the answer.
    #[track_caller]
    pub fn ask(&self, command: &str) -> String {
        self.tell(command);
        self.answer()
    }

    /// Waits until a thread of Java sleeps on a lock, and does not just listen: a message to all that comes in between is lost on it.
    #[track_caller]
    pub fn falls_asleep(&self) {
        let observer = self.peer.actor();
        eventually("Java sleeps", || observer.ask(&format!("asleep {}", self.name)) == "true");
    }

    /// Whether it has given an answer that the test has not read yet.
    pub fn has_answered(&self) -> bool {
        let said = self.peer.heard.said.lock().expect("not poisoned");
        said.answers.get(&self.name).is_some_and(|answers| !answers.is_empty())
    }
}
