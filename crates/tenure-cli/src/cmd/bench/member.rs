//! One of the processes of P4.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, Write};

use tenure::Locker;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::cases::{CASES, Case, Kind};
use super::check::Check;
use super::crowd::{self, Round};
use super::team::{Answer, Go, Setup};
use super::{runtime, silent};
use crate::exit::{self, Failure};

/// The hidden name under which tenure starts itself as a member.
pub(super) const MARK: &str = "__bench";

/// Runs a command line that the team made; `None` for one that a user typed.
pub(crate) fn hidden_subcommand(mut words: impl Iterator<Item = OsString>) -> Option<Failure> {
    words.next()?;
    words.next().filter(|word| word == MARK)?;
    let parent: i32 = words.next()?.to_str()?.parse().ok()?;
    let is_ours = rustix::process::getppid().is_some_and(|pid| pid.as_raw_nonzero().get() == parent);
    is_ours.then(serve)
}

fn serve() -> Failure {
    let (heard, orders) = unbounded_channel();
    // Its end is seen also while a round is played.
    std::thread::spawn(move || std::io::stdin().lock().lines().map_while(Result::ok).try_for_each(|line| heard.send(line)));
    let done = runtime().and_then(|runtime| runtime.block_on(play(orders)));
    if let Err(Failure { code, message, details }) = done {
        say(&Answer::Failed { code, message, details });
    }
    silent(0)
}

async fn play(mut orders: UnboundedReceiver<String>) -> Result<(), Failure> {
    let setup: Setup = read(orders.recv().await)?;
    let case = CASES.iter().find(|case| case.kind == Kind::Processes).ok_or_else(|| silent(exit::USAGE))?;
    // Its directory is gone when the first round begins.
    let note = File::options().read(true).write(true).open(&setup.note)?;
    let locker = Locker::connect(&setup.url).await?;
    say(&Answer::Ready);
    let played = rounds(&locker, (&setup, &note), case, &mut orders).await;
    // Whatever happened: nothing may be left behind in the store.
    drop(locker.close().await);
    played
}

async fn rounds(
    locker: &Locker,
    (setup, note): (&Setup, &File),
    case: &Case,
    orders: &mut UnboundedReceiver<String>,
) -> Result<(), Failure> {
    while let Some(order) = orders.recv().await {
        let Go { name, start, lasts } = read(Some(order))?;
        let check = Check::between(note.try_clone()?, setup.process, case.tasks);
        let round = Round::new(case, check, start, lasts.unwrap_or(setup.lasts));
        let outcome = tokio::select! {
            biased;
            // Not an order: the end of the input.
            _ = orders.recv() => return Ok(()),
            outcome = crowd::cycles(locker, round, |_| name.clone()) => outcome?,
        };
        say(&Answer::Done(Box::new(outcome)));
    }
    Ok(())
}

fn read<T: serde::de::DeserializeOwned>(line: Option<String>) -> Result<T, Failure> {
    let line = line.ok_or_else(|| silent(exit::USAGE))?;
    // Not the error's own words: they could be a part of the URL.
    serde_json::from_str(&line).map_err(|_| Failure::new(exit::FAILED, "a process of P4 was told what it does not understand"))
}

fn say(answer: &Answer) {
    let Ok(line) = serde_json::to_string(answer) else { return };
    let mut out = std::io::stdout().lock();
    // Nobody may be there any more.
    drop(writeln!(out, "{line}").and_then(|()| out.flush()));
}
