//! What is to be done, made from what was typed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::CommandFactory;
use clap::error::ErrorKind;
use clap_complete::Shell;
use tenure::{Mode, Resource};

use crate::args::{BenchArgs, Cli, Command, DdlArgs, ElectArgs, FenceCommand, KindArgs, LabArgs, LabCommand, RunArgs};
use crate::cmd::bench::Bench;
use crate::cmd::lab::Lab;
use crate::source::Source;

/// One command, checked.
pub(crate) enum Plan {
    /// On a store.
    Store(Source, Work),
    /// On nothing.
    Completions(Shell),
    Man(Option<PathBuf>),
    Ddl(DdlArgs),
    /// On servers of its own.
    Lab(Lab),
    LabLs {
        json: bool,
    },
}

/// Where the locks are. It may hold a password: it has no `Debug` and is never printed.
pub(crate) struct Store {
    pub(crate) url: String,
}

pub(crate) enum Work {
    /// Also an election.
    Run(Job),
    Who {
        name: Resource,
        stripes: Option<u32>,
        json: bool,
    },
    Ls {
        prefix: String,
        json: bool,
    },
    Break {
        name: Resource,
        json: bool,
    },
    Resize {
        name: Resource,
        permits: u32,
        json: bool,
    },
    Bench(Bench),
}

/// A program to run under a lock.
pub(crate) struct Job {
    pub(crate) name: Resource,
    /// Which lock of the name is wanted.
    pub(crate) mode: Mode,
    /// Whether a lock that was lost is waited for again, and the program started again: an election.
    pub(crate) campaigns: bool,
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
    pub(crate) patience: Patience,
    /// How long a store that cannot be reached at the start is tried.
    pub(crate) reach_within: Duration,
    /// `None`: the URL's, or the library's.
    pub(crate) lease: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) min_hold: Duration,
    pub(crate) note: Option<Arc<str>>,
    pub(crate) busy_code: u8,
    pub(crate) verbose: bool,
    /// Whether the program may know where the store is.
    pub(crate) pass_url: bool,
    pub(crate) no_new_privs: bool,
    /// Where the program gets a control group of its own.
    pub(crate) cgroup: Option<PathBuf>,
}

/// How long to wait for a busy lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    None,
    For(Duration),
    Endless,
}

impl Plan {
    pub(crate) fn new(cli: Cli) -> Result<Self, clap::Error> {
        let source = Source::new(cli.url, cli.url_file, |name| std::env::var_os(name)).map_err(|e| refuse(&e));
        let work = match cli.command {
            Command::Run(args) => Work::Run(Job::new(args)?),
            Command::Elect(args) => Work::Run(Job::elect(args)?),
            Command::Who(args) => Work::Who { name: args.one.name, stripes: args.stripes, json: args.one.json },
            Command::Ls(args) => Work::Ls { prefix: args.prefix, json: args.json },
            Command::Break(args) => Work::Break { name: args.name, json: args.json },
            Command::Resize { one, permits } => Work::Resize { name: one.name, permits, json: one.json },
            Command::Bench(args) => Work::Bench(Bench::new(args)),
            Command::Lab(LabArgs { command: Some(LabCommand::Ls { json }), .. }) => return Ok(Self::LabLs { json }),
            Command::Lab(LabArgs { ids, json, html, server, .. }) => return Ok(Self::Lab(Lab { ids, json, html, server })),
            Command::Completions { shell } => return Ok(Self::Completions(shell)),
            Command::Fence(FenceCommand::Ddl(args)) => return Ok(Self::Ddl(args)),
            Command::Man { dir } => return Ok(Self::Man(dir)),
        };
        Ok(Self::Store(source?, work))
    }
}

impl Job {
    fn new(args: RunArgs) -> Result<Self, clap::Error> {
        let min_hold = args.min_hold.unwrap_or(Duration::ZERO);
        if args.max_hold.is_some_and(|max| max < min_hold) {
            return Err(refuse("--min-hold is longer than --max-hold"));
        }
        if args.max_hold.is_some_and(|max| max.is_zero()) {
            return Err(refuse("--max-hold 0s would stop the program at once"));
        }
        let (program, words) = words(args.program)?;
        let patience = match (args.no_wait, args.wait) {
            (true, _) => Patience::None,
            (false, Some(wait)) => Patience::For(wait),
            (false, None) => Patience::Endless,
        };
        Ok(Self {
            name: args.name,
            mode: mode(&args.kind),
            campaigns: false,
            program,
            args: words,
            patience,
            reach_within: args.wait.unwrap_or_default(),
            lease: args.lease,
            max_hold: args.max_hold,
            min_hold,
            note: args.note,
            busy_code: args.busy_code,
            verbose: args.verbose,
            pass_url: args.ways.pass_url,
            no_new_privs: args.ways.no_new_privs,
            cgroup: args.ways.cgroup,
        })
    }

    fn elect(args: ElectArgs) -> Result<Self, clap::Error> {
        let (program, words) = words(args.program)?;
        Ok(Self {
            name: args.name,
            mode: Mode::Exclusive,
            campaigns: true,
            program,
            args: words,
            patience: Patience::Endless,
            reach_within: args.wait.unwrap_or_default(),
            lease: args.lease,
            max_hold: None,
            min_hold: Duration::ZERO,
            note: args.value,
            busy_code: crate::exit::BUSY,
            verbose: args.verbose,
            pass_url: args.ways.pass_url,
            no_new_privs: args.ways.no_new_privs,
            cgroup: args.ways.cgroup,
        })
    }
}

impl Bench {
    fn new(args: BenchArgs) -> Self {
        let BenchArgs { only, seconds, rounds, holds, json, svg } = args;
        Self { only, lasts: seconds, rounds, holds: usize::try_from(holds).unwrap_or(usize::MAX), json, svg }
    }
}

fn mode(args: &KindArgs) -> Mode {
    match args {
        KindArgs { permits: Some(of), .. } => Mode::Permits { take: 1, of: *of },
        KindArgs { shared: true, .. } => Mode::Read,
        KindArgs { write: true, .. } => Mode::Write,
        KindArgs { fair: true, .. } => Mode::Fair,
        _ => Mode::Exclusive,
    }
}

fn words(program: Vec<OsString>) -> Result<(OsString, Vec<OsString>), clap::Error> {
    let mut words = program.into_iter();
    let program = words.next().filter(|p| !p.is_empty()).ok_or_else(|| refuse("no program is given after `--`"))?;
    Ok((program, words.collect()))
}

fn refuse(problem: &str) -> clap::Error {
    Cli::command().error(ErrorKind::ValueValidation, problem)
}
