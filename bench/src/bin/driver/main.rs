//! One contender: says `ready`, runs a round for every `go` on its input, and prints one line for each. Ends with its input.
//!
//! `driver --contender NAME --scenario cycles --url redis://… --tasks N --seconds S …`; the other languages take the same options.

mod check;
mod contenders;
mod crowd;
mod heap;
mod orders;
mod session;

use std::process::ExitCode;

use tenure_bench::options::Options;
use tenure_bench::outcome::Unsupported;
use tokio::runtime::{Builder, Runtime};

/// What goes wrong in a contender; it ends the round.
pub(crate) type Fault = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let options = match Options::read(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("driver: {problem}");
            return ExitCode::from(2);
        }
    };
    match contenders::run(&runtime(2), &options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => {
            orders::say(&Unsupported { unsupported: refusal.to_string() });
            ExitCode::FAILURE
        }
    }
}

/// Two workers, so that what tasks share must be shared between threads.
pub(crate) fn runtime(workers: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(workers).enable_all().build().expect("a runtime")
}
