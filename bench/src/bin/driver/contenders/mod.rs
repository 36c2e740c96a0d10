//! The contenders that are written in Rust, each as a client and its locks.

mod files;
mod ours;
mod probe;
mod raw;
mod rlock;
mod rslock;
mod sqlite;

use tenure_bench::options::Options;
use tokio::runtime::Runtime;

use crate::Fault;
use crate::crowd::Client;
use crate::session::Session;

/// Runs one contender until the input ends. An error is why it cannot.
pub(crate) fn run(runtime: &Runtime, options: &Options) -> Result<(), Fault> {
    let named = |names: &[&str]| names.contains(&&*options.contender);
    if options.scenario == "probe" {
        return probe::run(runtime, options);
    }
    if options.scenario == "scripts" {
        runtime.block_on(raw::check_known(&options.urls[0]))?;
        crate::orders::word("ready");
        return Ok(());
    }
    if named(&["raw", "raw-bg"]) {
        // Kept until the end: the connection lives on it.
        let beside = (options.contender == "raw-bg").then(|| crate::runtime(1));
        let client = beside.as_ref().unwrap_or(runtime).block_on(raw::Raw::connect(options))?;
        session(runtime, options, client)
    } else if named(&["rslock"]) {
        session(runtime, options, rslock::Rslock::connect(options)?)
    } else if named(&["rlock"]) {
        session(runtime, options, runtime.block_on(rlock::Rlock::connect(options))?)
    } else if named(&["flock", "flock-thread", "fs4"]) {
        session(runtime, options, files::Files::open(options)?)
    } else if named(&["rusqlite"]) {
        session(runtime, options, sqlite::Sqlite::open(options)?)
    } else {
        session(runtime, options, runtime.block_on(ours::Ours::connect(options))?)
    }
}

fn session<C: Client>(runtime: &Runtime, options: &Options, client: C) -> Result<(), Fault> {
    Session::new(runtime, options, client).run()
}

/// Refuses what a library does not have.
fn only(options: &Options, modes: &[&str]) -> Result<(), Fault> {
    if modes.contains(&&*options.mode) { Ok(()) } else { Err(format!("has no {}", options.mode).into()) }
}
