//! Who takes part, and how each is started.

use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Tenure, in one of its ways.
    Ours,
    /// The same calls by hand.
    Limit,
    Peer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    Rust,
    Java,
    Go,
    Node,
    Python,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    language: Language,
    /// It asks by a bare SET beside its scripts. The scripts of all others call SET themselves, which no client has sent.
    pub(crate) sends_set: bool,
}

const fn one(name: &'static str, kind: Kind, language: Language) -> Contender {
    Contender { name, kind, language, sends_set: false }
}

const fn plain(name: &'static str, language: Language) -> Contender {
    Contender { name, kind: Kind::Peer, language, sends_set: true }
}

const ALL: &[Contender] = &[
    one("raw", Kind::Limit, Language::Rust),
    one("raw-bg", Kind::Limit, Language::Rust),
    one("tenure", Kind::Ours, Language::Rust),
    one("tenure-drop", Kind::Ours, Language::Rust),
    one("tenure-fair", Kind::Ours, Language::Rust),
    one("tenure-linger", Kind::Ours, Language::Rust),
    one("tenure-plain", Kind::Ours, Language::Rust),
    plain("rslock", Language::Rust),
    plain("rlock", Language::Rust),
    one("redisson", Kind::Peer, Language::Java),
    one("redisson-fenced", Kind::Peer, Language::Java),
    one("redisson-fair", Kind::Peer, Language::Java),
    plain("redsync", Language::Go),
    one("rueidislock", Kind::Peer, Language::Go),
    one("node-redlock", Kind::Peer, Language::Node),
    plain("redis-py", Language::Python),
    one("rusqlite", Kind::Limit, Language::Rust),
    one("flock", Kind::Peer, Language::Rust),
    one("flock-thread", Kind::Peer, Language::Rust),
    one("fs4", Kind::Peer, Language::Rust),
    // Programs, of which there is no driver.
    one("tenure run", Kind::Ours, Language::Rust),
    one("tenure run (sqlite)", Kind::Ours, Language::Rust),
    one("flock(1)", Kind::Peer, Language::Rust),
    one("redis-cli + sh", Kind::Peer, Language::Rust),
];

pub(crate) fn named(name: &str) -> Option<Contender> {
    ALL.iter().find(|contender| contender.name == name).copied()
}

/// Where the drivers are.
#[derive(Debug)]
pub(crate) struct Programs {
    /// Those in Rust, and the command `tenure`.
    pub(crate) rust: PathBuf,
    /// What the others are built into.
    pub(crate) others: PathBuf,
}

impl Programs {
    /// What starts the driver of a contender. An error is why there is none.
    pub(crate) fn driver(&self, contender: Contender) -> Result<Command, String> {
        let (program, file) = match contender.language {
            Language::Rust => (None, self.rust.join("driver")),
            Language::Java => (Some("java"), self.others.join("java/driver.jar")),
            Language::Go => (None, self.others.join("go").join(contender.name)),
            Language::Node => (Some("node"), self.others.join("node/driver.js")),
            Language::Python => (Some("python3"), self.others.join("python/driver.py")),
        };
        if !file.exists() {
            return Err("not built here".to_owned());
        }
        let mut command = Command::new(program.map_or(&*file, Path::new));
        if contender.language == Language::Java {
            command.args(["-Xmx512m", "-jar"]);
        }
        if program.is_some() {
            command.arg(&file);
        }
        Ok(command)
    }

    /// The shim that counts allocations, for those where that says something.
    pub(crate) fn heap(&self, contender: Contender) -> Option<PathBuf> {
        let shim = self.others.join("heap.so");
        (contender.language == Language::Rust && shim.exists()).then_some(shim)
    }
}

impl Contender {
    /// Seconds before the first round. A virtual machine compiles what is hot only by and by.
    pub(crate) fn warmup(self) -> f64 {
        match self.language {
            Language::Java => 10.0,
            Language::Node => 2.0,
            _ => 0.3,
        }
    }
}
