//! Several processes on one name: tenure starts itself again, and tells each by its stdin what to do. There the URL is seen by nobody else, as it
//! would be among the arguments or in the environment. A member ends with its stdin, also when this process is killed.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::cases::PROCESSES;
use super::check;
use super::clock;
use super::crowd::nanos;
use super::member::MARK;
use super::outcome::Outcome;
use crate::cmd::run::again;
use crate::exit::{self, Failure};
use crate::source;

/// From the order to the start of a round: all processes must have heard it.
const LEAD: Duration = Duration::from_millis(20);
/// How long a member may take to give back what it holds.
const FAREWELL: Duration = Duration::from_secs(10);

/// What a member is told first. The URL may hold a password: this has no `Debug`.
#[derive(Serialize, Deserialize)]
pub(super) struct Setup {
    pub(super) url: String,
    pub(super) process: usize,
    pub(super) lasts: Duration,
    /// Where processes see each other inside.
    pub(super) note: PathBuf,
}

/// One round on a name that all members share.
#[derive(Serialize, Deserialize)]
pub(super) struct Go {
    pub(super) name: String,
    /// On the clock that all processes share.
    pub(super) start: u64,
    /// If it is not the usual time.
    pub(super) lasts: Option<Duration>,
}

/// What a member says.
#[derive(Serialize, Deserialize)]
pub(super) enum Answer {
    Ready,
    Done(Box<Outcome>),
    Failed { code: u8, message: String, details: Vec<String> },
}

pub(super) struct Team {
    members: Vec<Member>,
    note: File,
}

struct Member {
    process: Child,
    orders: Option<ChildStdin>,
    answers: UnboundedReceiver<String>,
}

impl Team {
    /// Starts all processes, which then wait.
    pub(super) async fn start(url: &str, lasts: Duration) -> Result<Self, Failure> {
        let dir = tenure_lab::resources::temp_dir("tenure-bench-").map_err(|e| not_started(&e))?;
        let path = dir.path().join("note");
        let note = File::create_new(&path).map_err(|e| not_started(&e))?;
        let mut team = Self { members: Vec::new(), note };
        for process in 0..PROCESSES {
            let setup = Setup { url: url.to_owned(), process, lasts, note: path.clone() };
            let mut member = Member::start().map_err(|e| not_started(&e))?;
            member.tell(&setup)?;
            team.members.push(member);
        }
        // They have the file open then: its directory goes with this call.
        for member in &mut team.members {
            match member.answer().await? {
                Answer::Ready => {}
                _ => return Err(silent_end()),
            }
        }
        Ok(team)
    }

    /// Plays a round in all processes at the same time.
    pub(super) async fn round(&mut self, name: &str, lasts: Option<Duration>) -> Result<Outcome, Failure> {
        check::prepare(&self.note)?;
        let go = Go { name: name.to_owned(), start: clock::now() + nanos(LEAD), lasts };
        self.members.iter_mut().try_for_each(|member| member.tell(&go))?;
        let mut all: Option<Outcome> = None;
        for member in &mut self.members {
            let Answer::Done(one) = member.answer().await? else { return Err(silent_end()) };
            all = Some(match all {
                None => *one,
                Some(others) => others.beside(&one),
            });
        }
        Ok(all.unwrap_or_default())
    }
}

impl Member {
    fn start() -> std::io::Result<Self> {
        let mut command = again(MARK)?;
        command.arg(std::process::id().to_string()).env_remove(source::URL).env_remove(source::URL_FILE);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // Out of the way of the terminal's signals: it is told by its stdin when to end.
        let mut process = command.process_group(0).spawn()?;
        let (orders, output) = (process.stdin.take(), process.stdout.take());
        let (said, answers) = unbounded_channel();
        std::thread::spawn(move || {
            let lines = output.into_iter().flat_map(|output| BufReader::new(output).lines());
            lines.map_while(Result::ok).try_for_each(|line| said.send(line))
        });
        Ok(Self { process, orders, answers })
    }

    fn tell(&mut self, what: &impl Serialize) -> Result<(), Failure> {
        let mut line = serde_json::to_vec(what).map_err(|e| not_started(&e.into()))?;
        line.push(b'\n');
        // A member that has ended has said why.
        let told = self.orders.as_mut().map(|orders| orders.write_all(&line));
        drop(told);
        Ok(())
    }

    async fn answer(&mut self) -> Result<Answer, Failure> {
        let line = self.answers.recv().await.ok_or_else(silent_end)?;
        match serde_json::from_str(&line) {
            Ok(Answer::Failed { code, message, details }) => Err(Failure { code, message, details }),
            Ok(answer) => Ok(answer),
            Err(_) => Err(silent_end()),
        }
    }
}

fn not_started(error: &std::io::Error) -> Failure {
    Failure::new(exit::FAILED, format!("cannot start the processes of P4: {error}"))
}

fn silent_end() -> Failure {
    Failure::new(exit::FAILED, "a process of P4 ended without a word")
}

impl Drop for Team {
    /// Waits until they have given back what they hold: then nothing is left behind in the store.
    fn drop(&mut self) {
        self.members.iter_mut().for_each(|member| member.orders = None);
        let limit = Instant::now() + FAREWELL;
        for Member { process, .. } in &mut self.members {
            while matches!(process.try_wait(), Ok(None)) && Instant::now() < limit {
                std::thread::sleep(Duration::from_millis(5));
            }
            // One that has ended is not signalled.
            drop(process.kill());
            drop(process.wait());
        }
    }
}
