//! Processes of the test program itself. Each has a role, and gets commands line by line.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const ROLE: &str = "TENURE_TEST_ROLE";

/// The role of this process, if it is not the one that runs the tests.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

#[derive(Debug)]
pub struct Player {
    pub child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Player {
    pub fn start(role: &str, url: &str, more: &[&str]) -> Self {
        Self::spawn(Command::new(std::env::current_exe().expect("this program")), role, url, more)
    }

    /// As another user, who may have no right to read this program's file.
    pub fn start_as(user: u32, role: &str, url: &str, more: &[&str]) -> Self {
        let mut command = Command::new("/proc/self/exe");
        command.uid(user).gid(user);
        Self::spawn(command, role, url, more)
    }

    /// By another program, which becomes this one: it sets a umask, a user or a variable first.
    pub fn start_under(by: &mut Command, role: &str, url: &str) -> Self {
        let this = std::env::current_exe().expect("this program");
        Self::spawn_by(by.arg(this), role, url, &[])
    }

    fn spawn(mut command: Command, role: &str, url: &str, more: &[&str]) -> Self {
        Self::spawn_by(&mut command, role, url, more)
    }

    fn spawn_by(command: &mut Command, role: &str, url: &str, more: &[&str]) -> Self {
        command.env(ROLE, role).arg(url).args(more).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("started");
        let (to, from) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        Self { child, to, from: BufReader::new(from) }
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("read");
        line.trim_end().to_owned()
    }

    pub fn tell(&mut self, line: &str) {
        writeln!(self.to, "{line}").expect("told");
    }

    pub fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("waited");
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}
