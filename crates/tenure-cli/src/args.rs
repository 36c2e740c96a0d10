//! What was typed. [`plan`](crate::plan) turns it into what is to be done.

mod fence;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
pub(crate) use fence::{Column, DdlArgs, FenceCommand};
use tenure::Resource;
use tenure::backend::Claim;

const RUN_NOTES: &str = "\
The program finds TENURE_NAME, TENURE_TOKEN and TENURE_OWNER in its environment. The token grows with every grant of a \
name: hand it to whatever the program writes to, so that a late write can be told from a newer holder's.

A name is one kind of lock. Plain run (also with --fair), --shared with --write, and --permits are different locks: do \
not count on one of them to keep another one out, and use a name for one of them only. Who runs without --fair comes in \
between those who run with it. A program that writes while others only read takes --write, they take --shared; a writer \
that waits holds up the readers that come after it. The number of permits is kept by the store: who takes the first one sets it, \
tenure resize changes it.

The lock is renewed for as long as the program itself runs; processes that it leaves behind run on without the lock. \
The program has a process group of its own, and signals are passed on to it. If renewals fail, the whole group gets \
SIGTERM after two thirds of the lease and SIGKILL before its end. If tenure is killed, so is the group. Processes that \
leave the group (daemons, the jobs of an interactive shell) are out of reach: only the token stops them.

Exit status:
  N      the program's own
  128+N  the program died of signal N, or tenure was interrupted by it while it waited
  2      wrong usage
  69     the store cannot be reached, or refuses
  75     somebody else has the lock, or no permit is free (or what --busy-code says)
  76     the lock was lost, or held for longer than --max-hold, and the program was stopped
  126    the program cannot be executed
  127    the program was not found

Examples:
  tenure run backup -- pg_dump -f /backup/db.sql
  tenure run --no-wait --busy-code 0 --min-hold 30s nightly -- ./report.sh
  tenure run --shared prices -- ./report.sh       (together with other readers)
  tenure run --write prices -- ./import.sh        (alone, when they are done)
  tenure run --permits 3 exports -- ./export.sh   (three at a time)
  tenure run --fair tickets -- ./sell.sh          (first come, first served)
  tenure run demo -- sh -c 'echo \"token $TENURE_TOKEN\"'";

const ELECT_NOTES: &str = "\
The program finds what it finds under tenure run, and TENURE_TERM: the fencing token of this leadership, larger than that \
of every leader before. Hand it to whatever the program writes to.

If leadership is lost, the program is stopped as under tenure run, and the campaign goes on: the program may be started \
again. It also goes on while the store is away. When the program ends by itself, leadership is resigned and tenure ends \
with its exit status. A signal ends a campaign; a leader passes it on to the program. A program that was asked to end \
(SIGINT, SIGTERM, SIGQUIT) is not started again.

An election is the lock of its name: tenure who shows the leader, tenure break ends its leadership, and tenure run under \
the same name waits for its end.

Exit status:
  N      the program's own
  128+N  the program died of signal N, or tenure was interrupted by it
  2      wrong usage
  69     the store could not be reached at the start, or refuses
  76     leadership was lost unnoticed before the program ended
  126    the program cannot be executed
  127    the program was not found

Examples:
  tenure elect scheduler -- ./scheduler
  tenure elect --value 10.0.0.7:8080 --lease 10s scheduler -- ./scheduler
  tenure who scheduler";

/// Run a program under a distributed lock; see, list and break locks.
#[derive(Parser)]
#[command(name = "tenure", version, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// The store [default: sqlite:, a file in the user's state directory].
    ///
    /// For example sqlite:/var/lib/app/locks.db, redis://host:6379/0, or, in quotes, for a shell takes | for a pipe,
    /// 'quorum:redis://a|redis://b|redis://c'. The command line can be read by every user of the machine: give a URL that
    /// holds a password in the environment.
    #[arg(long, global = true, env = "TENURE_URL", hide_env_values = true, value_name = "URL")]
    pub(crate) url: Option<String>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run a program while holding a lock.
    #[command(after_help = "See --help for exit status, environment and what happens when the lock is lost.", after_long_help = RUN_NOTES)]
    Run(RunArgs),
    /// Campaign for leadership, and run a program while leading.
    #[command(after_help = "See --help for exit status, environment and what happens when leadership is lost.", after_long_help = ELECT_NOTES)]
    Elect(ElectArgs),
    /// Show who holds a lock, and who is in line; of a quorum also what each node says.
    Who(WhoArgs),
    /// List the locks that are held.
    Ls(LsArgs),
    /// End the hold of whoever has a lock, by force.
    ///
    /// The holder is told at its next renewal, at the latest after a third of its lease; its token is out of date at
    /// once. Exits with 1 if nobody held the lock.
    Break(OneArgs),
    /// Set how many permits a name has, for all who run with --permits.
    ///
    /// Permits that are held above the new number are not taken away, but nobody is granted any until enough have come
    /// back.
    Resize {
        #[command(flatten)]
        one: OneArgs,
        /// How many permits; with 0 nobody gets one any more.
        #[arg(value_name = "N")]
        permits: u32,
    },
    /// Play the failures of distributed locks on real servers, and see what stops them.
    ///
    /// Needs redis-server, and starts it by itself; no store is used, and none is harmed.
    #[command(after_help = "See --help for what the columns mean.", after_long_help = crate::cmd::lab::NOTES)]
    Lab(LabArgs),
    /// What a storage needs that checks tokens.
    #[command(subcommand)]
    Fence(FenceCommand),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print the manual page, or write one page per command into a directory.
    Man {
        /// Where to write the pages.
        dir: Option<PathBuf>,
    },
}

#[derive(Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) kind: KindArgs,

    /// How long to wait for the lock, such as 90s or 1h30m [default: for ever].
    #[arg(long, value_name = "DURATION", value_parser = tenure::duration::parse, conflicts_with = "no_wait")]
    pub(crate) wait: Option<Duration>,

    /// Do not wait: give up at once if somebody else has the lock.
    #[arg(short, long)]
    pub(crate) no_wait: bool,

    /// How long the lock outlives a crash; renewed at a third of it [default: the URL's lease, or 30s].
    #[arg(long, value_name = "DURATION", value_parser = lease)]
    pub(crate) lease: Option<Duration>,

    /// Stop the program when it has held the lock for this long.
    #[arg(long, value_name = "DURATION", value_parser = tenure::duration::parse)]
    pub(crate) max_hold: Option<Duration>,

    /// Keep the lock for at least this long, also when the program ends earlier; a signal cuts it short.
    #[arg(long, value_name = "DURATION", value_parser = tenure::duration::parse)]
    pub(crate) min_hold: Option<Duration>,

    /// Words for those who ask who holds the lock [default: host, process id and program].
    #[arg(long, value_name = "TEXT", value_parser = Claim::check_note)]
    pub(crate) note: Option<Arc<str>>,

    /// The exit status when somebody else has the lock.
    #[arg(long, value_name = "N", default_value_t = crate::exit::BUSY)]
    pub(crate) busy_code: u8,

    /// Say on stderr what happens to the lock.
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// The name of the lock.
    #[arg(value_parser = name)]
    pub(crate) name: Resource,

    /// The program and its arguments, after `--`.
    #[arg(last = true, required = true, num_args = 1.., value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

/// How the lock is held. Without any of these: by one alone.
#[derive(Args)]
#[group(multiple = false)]
pub(crate) struct KindArgs {
    /// Hold the name's read/write lock together with other readers.
    #[arg(long)]
    pub(crate) shared: bool,

    /// Hold the name's read/write lock alone, without readers.
    #[arg(long)]
    pub(crate) write: bool,

    /// Hold one of the name's N permits.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) permits: Option<u32>,

    /// First come, first served, among all who say so.
    #[arg(long)]
    pub(crate) fair: bool,
}

#[derive(Args)]
pub(crate) struct ElectArgs {
    /// What others are told of the leader, such as its address [default: host, process id and program].
    #[arg(long, value_name = "TEXT", value_parser = Claim::check_note)]
    pub(crate) value: Option<Arc<str>>,

    /// How long leadership outlives a crash; renewed at a third of it [default: the URL's lease, or 30s].
    #[arg(long, value_name = "DURATION", value_parser = lease)]
    pub(crate) lease: Option<Duration>,

    /// Say on stderr what happens to the leadership.
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// The name of the election.
    #[arg(value_parser = name)]
    pub(crate) name: Resource,

    /// The program and its arguments, after `--`.
    #[arg(last = true, required = true, num_args = 1.., value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

#[derive(Args)]
pub(crate) struct WhoArgs {
    #[command(flatten)]
    pub(crate) one: OneArgs,

    /// Show the locks NAME#0 to NAME#N-1 instead, also those that are free.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) stripes: Option<u32>,
}

#[derive(Args)]
pub(crate) struct OneArgs {
    /// The name of the lock.
    #[arg(value_parser = name)]
    pub(crate) name: Resource,

    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct LsArgs {
    /// Only names that start so.
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,

    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    pub(crate) command: Option<LabCommand>,

    /// The stories to play [default: all].
    #[arg(value_name = "ID", value_parser = story(), ignore_case = true)]
    pub(crate) ids: Vec<String>,

    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,

    /// Write a page with pictures of who believed what, and when.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// The server program.
    #[arg(long, value_name = "PROGRAM", default_value = "redis-server")]
    pub(crate) server: OsString,
}

#[derive(Subcommand)]
pub(crate) enum LabCommand {
    /// List the stories.
    Ls {
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
}

fn story() -> PossibleValuesParser {
    PossibleValuesParser::new(crate::cmd::lab::titles().map(|(id, title)| PossibleValue::new(id).help(title)))
}

fn name(text: &str) -> tenure::Result<Resource> {
    Resource::new(text)
}

fn lease(text: &str) -> tenure::Result<Duration> {
    Claim::check_lease(tenure::duration::parse(text)?)
}
