//! `tenure lab`: plays the stories of [`tenure_lab`], and prints what became of each.

mod help;
mod interrupt;
mod progress;
mod table;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Command;

use serde::Serialize;
use tenure_lab::{Launcher, Report, STORIES, Story};

use crate::cmd::run::{exec, own_program};
use crate::exit::{self, Failure};
use crate::output;
pub(crate) use help::HELP;
use progress::Progress;

/// What is to be played, and how it is printed.
pub(crate) struct Lab {
    /// Ids of stories; all if there are none.
    pub(crate) ids: Vec<String>,
    pub(crate) json: bool,
    pub(crate) html: Option<PathBuf>,
    pub(crate) server: OsString,
}

/// All reports, in JSON.
#[derive(Serialize)]
struct Reports<'a> {
    held: bool,
    stories: &'a [Report],
}

/// A story that can be played, in JSON.
#[derive(Serialize)]
struct Listed {
    id: &'static str,
    title: &'static str,
    ways: Vec<&'static str>,
}

/// Runs an actor of the lab; `None` for a command line that the lab did not make.
pub(crate) fn hidden_subcommand(mut words: impl Iterator<Item = OsString>) -> Option<Failure> {
    words.next()?;
    words.next().filter(|word| word == tenure_lab::ACTOR_SUBCOMMAND)?;
    let done = tenure_lab::run_actor(words)?;
    Some(done.map_or_else(|error| Failure::new(exit::FAILED, error.to_string()), |()| Failure::silent(0)))
}

/// The ids that can be asked for, each with its title.
pub(crate) fn titles() -> impl Iterator<Item = (&'static str, &'static str)> {
    STORIES.iter().map(|story| (story.id, story.title))
}

pub(crate) fn ls(json: bool) -> Result<u8, Failure> {
    if json {
        let ways = |story: &Story| story.ways.iter().map(|way| way.how).collect();
        let all: Vec<_> = STORIES.iter().map(|story| Listed { id: story.id, title: story.title, ways: ways(story) }).collect();
        output::print_json(&all)?;
    } else {
        let rows: Vec<_> = titles().map(|(id, title)| [id.to_owned(), title.to_owned()]).collect();
        output::print(&output::table(["ID", "WHAT GOES WRONG"], &rows))?;
    }
    Ok(0)
}

pub(crate) fn run(lab: &Lab) -> Result<u8, Failure> {
    if !tenure_lab::process::is_installed(&lab.server) {
        let server = lab.server.display();
        let message = format!(
            "cannot play: {server} is not there; install it (Debian: apt-get install redis-server) or name another with --server"
        );
        return Err(Failure::new(exit::UNAVAILABLE, message));
    }
    let dir = tenure_lab::resources::temp_dir("tenure-lab-")
        .map_err(|e| Failure::new(exit::FAILED, format!("cannot play: no directory to do it in: {e}")))?;
    interrupt::remove_on_signal(dir.path()).map_err(|e| Failure::new(exit::FAILED, format!("cannot listen to signals: {e}")))?;
    let own_program = own_program().map_err(|e| Failure::new(exit::FAILED, format!("cannot play: {e}")))?;
    let launcher = Launcher { redis_server: lab.server.clone(), own_program, tied };
    let asked = |story: &&&Story| lab.ids.is_empty() || lab.ids.iter().any(|id| id.eq_ignore_ascii_case(story.id));
    let mut reports = Vec::new();
    for story in STORIES.iter().filter(asked) {
        let progress = Progress::new();
        let report = story.play(&launcher, dir.path(), |way| progress.before(story, way), |row| progress.after(story, row));
        drop(progress);
        if !lab.json {
            let gap = if reports.is_empty() { "" } else { "\n" };
            output::print(&format!("{gap}{}", table::story(&report)))?;
        }
        reports.push(report);
    }
    finish(lab, &reports)
}

/// Prints and writes all reports, and says how it ends.
fn finish(lab: &Lab, reports: &[Report]) -> Result<u8, Failure> {
    if let Some(file) = &lab.html {
        let written = std::fs::write(file, tenure_lab::page(reports));
        written.map_err(|e| Failure::new(exit::FAILED, format!("cannot write the page to {}: {e}", file.display())))?;
    }
    let held = reports.iter().all(|report| report.held);
    if lab.json {
        output::print_json(&Reports { held, stories: reports })?;
    } else {
        output::print(&format!("\n{}", table::summary(reports)))?;
    }
    Ok(if held { 0 } else { exit::FAILED })
}

/// The command of a program that ends with the calling thread.
fn tied(program: &OsStr, args: &[OsString]) -> std::io::Result<Command> {
    exec::command(program, args, (exec::Privileges::Any, exec::Begins::AtOnce), None)
}
