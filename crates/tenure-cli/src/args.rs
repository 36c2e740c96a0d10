//! What was typed. [`plan`](crate::plan) turns it into what is to be done.

mod bench;
mod fence;
mod notes;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use bench::BenchArgs;
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
pub(crate) use fence::{Column, DdlArgs, FenceCommand};
use notes::{ELECT_NOTES, RUN_NOTES};
use tenure::Resource;
use tenure::backend::{Claim, Leases};

/// Run a program under a distributed lock; see, list and break locks.
#[derive(Parser)]
#[command(name = "tenure", version = concat!(env!("CARGO_PKG_VERSION"), env!("TENURE_COMMIT")), max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// The store [env: TENURE_URL] [default: sqlite:, a file in the user's state directory].
    ///
    /// For example sqlite:/var/lib/app/locks.db, redis://host:6379/0, or, in quotes, for a shell takes | for a pipe,
    /// 'quorum:redis://a|redis://b|redis://c'. The command line can be read by every user of the machine: a URL that holds a
    /// password belongs into a file (see --url-file) or into TENURE_URL in the environment, and a password into a file of
    /// its own (redis://user@host?pass_file=/path).
    #[arg(long, global = true, value_name = "URL", conflicts_with = "url_file")]
    pub(crate) url: Option<String>,

    /// A file that holds the URL of the store, on one line [env: TENURE_URL_FILE].
    ///
    /// Refused if others than its owner may write to it. Without any of these, a service of systemd finds its URL in its
    /// credential tenure.url (LoadCredential=tenure.url:/path).
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) url_file: Option<PathBuf>,

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
    /// Show the holders of a lock and its queue; of a quorum also what each node says.
    Who(WhoArgs),
    /// List the locks that are held.
    Ls(LsArgs),
    /// End the hold of a lock by force.
    ///
    /// The holder is told at its next renewal, at the latest after a third of its lease; its token is out of date at
    /// once. Exits with 1 if the lock was free.
    Break(OneArgs),
    /// Set how many permits a name has, for all that run with --permits.
    ///
    /// Permits that are held above the new number are not taken away, but none is granted until enough have come
    /// back.
    Resize {
        #[command(flatten)]
        one: OneArgs,
        /// How many permits; with 0 none is granted any more.
        #[arg(value_name = "N")]
        permits: u32,
    },
    /// Play the failures of distributed locks on real servers, and see what stops them.
    ///
    /// Needs redis-server, and starts it by itself; no store is used, and none is harmed.
    #[command(after_help = "See --help for what the columns mean.", after_long_help = crate::cmd::lab::HELP)]
    Lab(LabArgs),
    /// Measure what locks cost on your own store.
    ///
    /// It loads the store for as long as it runs. Nobody else's locks are touched.
    #[command(after_help = "See --help for the scenarios and what the columns mean.", after_long_help = bench::NOTES)]
    Bench(BenchArgs),
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

    /// How long to wait for the lock, such as 90s or 1h30m [default: forever].
    #[arg(long, value_name = "DURATION", value_parser = tenure::duration::parse, conflicts_with = "no_wait")]
    pub(crate) wait: Option<Duration>,

    /// Do not wait: give up at once if the lock is busy.
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

    /// A note that shows who holds the lock [default: host, process id and program].
    #[arg(long, value_name = "TEXT", value_parser = Claim::check_note)]
    pub(crate) note: Option<Arc<str>>,

    /// The exit status when the lock is busy.
    #[arg(long, value_name = "N", default_value_t = crate::exit::BUSY)]
    pub(crate) busy_code: u8,

    /// Say on stderr what happens to the lock.
    #[arg(short, long)]
    pub(crate) verbose: bool,

    #[command(flatten)]
    pub(crate) ways: WaysArgs,

    /// The name of the lock.
    #[arg(value_parser = name)]
    pub(crate) name: Resource,

    /// The program and its arguments, after `--`.
    #[arg(last = true, required = true, num_args = 1.., value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

/// What the program is given, and what it may not do.
#[derive(Args)]
pub(crate) struct WaysArgs {
    /// Leave TENURE_URL and TENURE_URL_FILE in the program's environment: for programs that run tenure themselves.
    #[arg(long)]
    pub(crate) pass_url: bool,

    /// Keep the program from becoming another user (sudo, setuid programs), which tenure could not stop.
    #[arg(long)]
    pub(crate) no_new_privs: bool,

    /// Run the program in a control group (cgroup v2) of its own in this directory, and kill all of it.
    ///
    /// Also daemons and what has become another user can be stopped then. This user has to be allowed to make groups there
    /// (Linux 5.14 or later), and tenure has to run in this directory or below it, or be allowed to write cgroup.procs of a
    /// group above both: Delegate=yes does that for a service of systemd.
    #[arg(long, value_name = "DIR")]
    pub(crate) cgroup: Option<PathBuf>,
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

    /// First come, first served, among all that say so.
    #[arg(long)]
    pub(crate) fair: bool,
}

#[derive(Args)]
pub(crate) struct ElectArgs {
    /// What others are told of the leader, such as its address [default: host, process id and program].
    #[arg(long, value_name = "TEXT", value_parser = Claim::check_note)]
    pub(crate) value: Option<Arc<str>>,

    /// How long to try a store that cannot be reached at the start [default: that is reported at once].
    #[arg(long, value_name = "DURATION", value_parser = tenure::duration::parse)]
    pub(crate) wait: Option<Duration>,

    /// How long leadership outlives a crash; renewed at a third of it [default: the URL's lease, or 30s].
    #[arg(long, value_name = "DURATION", value_parser = lease)]
    pub(crate) lease: Option<Duration>,

    /// Say on stderr what happens to the leadership.
    #[arg(short, long)]
    pub(crate) verbose: bool,

    #[command(flatten)]
    pub(crate) ways: WaysArgs,

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

fn name(text: &str) -> Result<Resource, tenure::Invalid> {
    Resource::new(text)
}

fn lease(text: &str) -> tenure::Result<Duration> {
    Leases::ANY.fit(tenure::duration::parse(text)?)
}
