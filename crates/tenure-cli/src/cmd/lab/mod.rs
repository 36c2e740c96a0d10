//! `tenure lab`: the failures of distributed locks, played on real servers; what each of them claims is checked.
//!
//! A *story* is one failure; each of its *ways* is played on a *stage* of its own: servers, a shop, and *actors* that are
//! processes. The story tells them what to do, step by step, so that what goes wrong goes wrong every time.

mod actor;
mod address;
mod clock;
mod crowd;
mod deeds;
mod ear;
mod habits;
mod notes;
mod page;
mod password;
mod picture;
mod player;
mod process;
mod progress;
mod queuer;
mod redlock;
mod server;
mod shop;
mod stage;
mod stories;
mod story;
mod table;
mod tidy;
mod timeline;
mod trade;
mod upset;
mod usual;
mod witness;
mod words;

use std::ffi::OsString;
use std::path::PathBuf;

use serde::Serialize;
use tempfile::TempDir;

use crate::exit::{self, Failure};
use crate::output;
pub(crate) use notes::NOTES;
use progress::Progress;
use stories::STORIES;
use story::{Report, Story};

/// What is to be played, and how it is to be told.
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

/// A story that could be played, in JSON.
#[derive(Serialize)]
struct Listed {
    id: &'static str,
    title: &'static str,
    ways: Vec<&'static str>,
}

/// Carries out a command line that the lab made for its actors; `None` for what people type.
pub(crate) fn second_life(mut words: impl Iterator<Item = OsString>) -> Option<Failure> {
    words.next()?;
    words.next().filter(|mark| mark == player::MARK)?;
    player::play(words)
}

/// The ids that can be asked for, with what they are about.
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
    if !server::is_installed(&lab.server) {
        let server = lab.server.display();
        let message = format!(
            "cannot play: {server} is not there; install it (Debian: apt-get install redis-server) or name another with --server"
        );
        return Err(Failure::new(exit::UNAVAILABLE, message));
    }
    let dir = directory().map_err(|e| Failure::new(exit::FAILED, format!("cannot play: no directory to do it in: {e}")))?;
    tidy::on_interrupt(dir.path()).map_err(|e| Failure::new(exit::FAILED, format!("cannot listen to signals: {e}")))?;
    let asked = |story: &&&Story| lab.ids.is_empty() || lab.ids.iter().any(|id| id.eq_ignore_ascii_case(story.id));
    let mut reports = Vec::new();
    for story in STORIES.iter().filter(asked) {
        let progress = Progress::new();
        let report = story.play(&lab.server, dir.path(), |way| progress.before(story, way), |row| progress.after(story, row));
        drop(progress);
        if !lab.json {
            let gap = if reports.is_empty() { "" } else { "\n" };
            output::print(&format!("{gap}{}", table::story(&report)))?;
        }
        reports.push(report);
    }
    if let Some(file) = &lab.html {
        let written = std::fs::write(file, page::page(&reports));
        written.map_err(|e| Failure::new(exit::FAILED, format!("cannot write the page to {}: {e}", file.display())))?;
    }
    let held = reports.iter().all(|report| report.held);
    if lab.json {
        output::print_json(&Reports { held, stories: &reports })?;
    } else {
        output::print(&format!("\n{}", table::summary(&reports)))?;
    }
    Ok(if held { 0 } else { exit::FAILED })
}

/// In memory where that can be had: the shop is asked often.
fn directory() -> std::io::Result<TempDir> {
    let named = || {
        let mut builder = tempfile::Builder::new();
        builder.prefix("tenure-lab-");
        builder
    };
    named().tempdir_in("/dev/shm").or_else(|_| named().tempdir())
}
