//! The options that every driver takes, in every language.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

/// What a driver is told to do. `Default` is one task on a name of its own.
#[derive(Debug, Clone)]
pub struct Options {
    pub contender: String,
    /// What to do: `cycles`, `drain`, `hold`, `crash` or `probe`.
    pub scenario: String,
    /// Where locks are kept: `redis://…`, several of them for a quorum, `sqlite:PATH`, or `file:PATH`.
    pub urls: Vec<String>,
    pub tasks: usize,
    pub seconds: f64,
    /// Seconds before `ready` in which the driver does the same on other names.
    pub warmup: f64,
    /// Whether all tasks want the same name.
    pub one_name: bool,
    /// How long a holder computes.
    pub section_us: u64,
    /// `mutex`, `fair`, `rw` or `semaphore`.
    pub mode: String,
    pub process: usize,
    pub processes: usize,
    /// Where processes see each other inside; within one process memory is enough.
    pub check: Option<PathBuf>,
    pub holds: usize,
    /// If it is not the library's own choice.
    pub lease_ms: Option<u64>,
}

impl Options {
    /// Reads `--name value` pairs; the missing ones have defaults.
    pub fn read(arguments: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut given = BTreeMap::new();
        let mut arguments = arguments.into_iter();
        while let Some(option) = arguments.next() {
            let name = option.strip_prefix("--").ok_or_else(|| format!("{option}: an option begins with --"))?.to_owned();
            let value = arguments.next().ok_or_else(|| format!("{option} needs a value"))?;
            given.insert(name, value);
        }
        let options = Self {
            contender: take(&mut given, "contender", String::new())?,
            scenario: take(&mut given, "scenario", "cycles".to_owned())?,
            urls: take(&mut given, "url", String::new())?.split(',').map(str::to_owned).collect(),
            tasks: take(&mut given, "tasks", 1)?,
            seconds: take(&mut given, "seconds", 1.0)?,
            warmup: take(&mut given, "warmup", 0.2)?,
            one_name: take(&mut given, "names", "own".to_owned())? == "one",
            section_us: take(&mut given, "section-us", 0)?,
            mode: take(&mut given, "mode", "mutex".to_owned())?,
            process: take(&mut given, "process", 0)?,
            processes: take(&mut given, "processes", 1)?,
            check: given.remove("check").map(PathBuf::from),
            holds: take(&mut given, "holds", 1000)?,
            lease_ms: given.remove("lease-ms").map(|ms| parse("lease-ms", &ms)).transpose()?,
        };
        match given.keys().next() {
            Some(unknown) => Err(format!("--{unknown} is unknown")),
            None => Ok(options),
        }
    }
}

fn take<T: FromStr>(given: &mut BTreeMap<String, String>, name: &str, default: T) -> Result<T, String> {
    given.remove(name).map_or(Ok(default), |value| parse(name, &value))
}

fn parse<T: FromStr>(name: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("--{name} {value}: not of its kind"))
}
