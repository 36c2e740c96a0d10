//! A process of ours that holds a lock until it is killed: this program again.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use super::java::{ROWS, SHORT, name, url};
use super::kinds::Kind;
use super::place::Site;
use tenure_testkit::locker::{block_on, connect};
use tenure_testkit::peer::Actor;

const KIND: &str = "TENURE_TEST_HOLDS";

/// In the child: holds what the parent named, says so, and ends with its input. Does nothing in the parent.
pub(crate) fn play() -> bool {
    let Ok(kind) = std::env::var(KIND) else { return false };
    let args: Vec<String> = std::env::args().skip(1).collect();
    block_on(async {
        let locker = connect(&args[0]).await;
        let (kind, _) = ROWS.iter().find(|(row, _)| row.name == kind).expect("a kind");
        println!("asks");
        let _hold = (kind.take)(&locker, &args[1]).await;
        println!("held");
        std::io::stdin().read_to_end(&mut Vec::new()).expect("read");
    });
    true
}

/// That process.
#[derive(Debug)]
pub(crate) struct Holder(Child);

impl Holder {
    /// Once it holds.
    pub(crate) fn start(kind: Kind, url: &str, name: &str) -> Self {
        Self::until("held", kind, url, name)
    }

    /// Once it is about to ask, for what somebody else has.
    pub(crate) fn waiting(kind: Kind, url: &str, name: &str) -> Self {
        Self::until("asks", kind, url, name)
    }

    fn until(word: &str, kind: Kind, url: &str, name: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.env(KIND, kind.name).args([url, name]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = Self(command.spawn().expect("started"));
        let said = BufReader::new(holder.0.stdout.take().expect("a pipe")).lines();
        assert!(said.map_while(std::io::Result::ok).any(|line| line == word), "ended before it {word}");
        holder
    }

    pub(crate) fn kill(&mut self) {
        let _already_gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A process of ours that holds a lock, and an actor of Java that waits for it.
pub(crate) fn java_waits_for_a_process(site: &Site, kind: Kind) -> (Actor<'_>, String, Holder) {
    let java = site.java.actor();
    let name = name(kind, "killed_rust", &java);
    let holder = Holder::start(kind, &url(site, kind, SHORT), &name);
    java.tell(&kind.tell("take", &name, ""));
    site.awaits(&name, 1);
    java.falls_asleep();
    (java, name, holder)
}
