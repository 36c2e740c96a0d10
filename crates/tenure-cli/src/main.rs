//! `tenure`: run a program under a distributed lock; see, list and break locks.

mod args;
mod cmd;
mod exit;
mod nodes;
mod output;
mod plan;
mod source;
mod states;

use std::process::ExitCode;

use clap::Parser;
use tokio::runtime::{Builder, Runtime};

use args::Cli;
use exit::Failure;
use plan::{Plan, Store, Work};

fn main() -> ExitCode {
    let words = std::env::args_os;
    let hidden = cmd::run::hidden_subcommand(words()).or_else(|| cmd::lab::hidden_subcommand(words()));
    if let Some(end) = hidden.or_else(|| cmd::bench::hidden_subcommand(words())) {
        // tenure waits for this process, so it must not wait for the reader of its messages.
        output::voice::never_block();
        let code = end.report();
        output::voice::flush();
        return code;
    }
    let plan = Plan::new(Cli::parse()).unwrap_or_else(|e| e.exit());
    let end = match execute(plan) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => failure.report(),
    };
    output::voice::flush();
    end
}

fn execute(plan: Plan) -> Result<u8, Failure> {
    match plan {
        Plan::Completions(shell) => cmd::docs::completions(shell),
        Plan::Man(dir) => cmd::docs::man(dir.as_deref()),
        Plan::Ddl(wanted) => cmd::fence::ddl(&wanted),
        Plan::Lab(lab) => cmd::lab::run(&lab),
        Plan::LabLs { json } => cmd::lab::ls(json),
        Plan::Store(source, work) => {
            if matches!(work, Work::Run(_)) {
                output::voice::never_block();
            }
            let store = Store { url: source.url()? };
            runtime(&work)?.block_on(on_store(&store, work))
        }
    }
}

fn runtime(work: &Work) -> Result<Runtime, Failure> {
    if matches!(work, Work::Bench(_)) {
        return cmd::bench::runtime();
    }
    // The program is started from this thread: it must live as long as the process does.
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|e| Failure::new(exit::FAILED, format!("cannot start: {e}")))
}

async fn on_store(store: &Store, work: Work) -> Result<u8, Failure> {
    match work {
        Work::Run(job) => cmd::run::run(store, &job).await,
        Work::Who { name, stripes: None, json } => cmd::who::who(store, &name, json).await,
        Work::Who { name, stripes: Some(n), json } => cmd::who::stripes(store, &name, n, json).await,
        Work::Ls { prefix, json } => cmd::ls::ls(store, &prefix, json).await,
        Work::Break { name, json } => cmd::break_::break_hold(store, &name, json).await,
        Work::Bench(wanted) => cmd::bench::bench(store, &wanted).await,
        Work::Resize { name, permits, json } => cmd::resize::resize(store, &name, permits, json).await,
    }
}
