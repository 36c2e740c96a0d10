//! `tenure bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::cmd::bench::GROUPS;

/// Nobody waits longer, and a typing error is not waited for.
const LONGEST: f64 = 3600.0;

pub(super) const NOTES: &str = "\
P1        one task, one name: lock and unlock in sequence
P2        64 tasks, each on a name of its own
P3        16 tasks of one process on one name
P3-100us  the same, and 100 µs of work inside
P4        4 processes of 4 tasks on one name: what a hand-over takes, and who is served how often
P5        1000 waiters on one name, in line behind a holder that lets go
P6        many locks held for a while: renewals, CPU and memory of this process

A cycle is from the call that locks to the answer of the release; p50, p99 and max are of cycles. LEAST/MOST is how often the \
least and the most served task had its turn. CPU is that of this process and those that it starts, not the store's. All names begin with \
tenure-bench: and random letters, behind the URL's own prefix, so that no lock of others is touched. Everything is given back at the end, also after Ctrl-C. On \
Redis the last token of each name stays for the URL's token_ttl.

CHECKED says what was looked at: on one name that no other holder is inside and that the token is larger than the one before (P1, P3, P4, \
P5), on names of their own that tokens grow (P2), of locks that are held that none is lost (P6).

Numbers of different runs or machines are not comparable.

Exit status:
  0      all was measured, and all checks held
  1      a check failed, or output cannot be written
  2      wrong usage
  69     the store cannot be reached, or refuses
  128+N  tenure was interrupted by signal N

Examples:
  tenure bench --url redis://host
  tenure bench --only P1,P4 --rounds 5 --svg locks.svg
  tenure bench --only P6 --holds 100000 --seconds 60";

#[derive(Args)]
pub(crate) struct BenchArgs {
    /// Only these scenarios, such as P1,P3 [default: all].
    #[arg(long, value_name = "ID", value_delimiter = ',', value_parser = PossibleValuesParser::new(GROUPS), ignore_case = true)]
    pub(crate) only: Vec<String>,

    /// How long each scenario runs, and how long P6 holds its locks, in seconds [default: 2, and 5 for P6].
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) seconds: Option<Duration>,

    /// How often each scenario is repeated; cycles/s is the median then.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,

    /// How many locks P6 holds.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) holds: u32,

    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,

    /// Write a histogram of the cycles of each scenario.
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|s| (0.01..=LONGEST).contains(s));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| format!("allowed: 0.01 to {LONGEST}"))
}
