//! The benchmark: contenders take turns on one server of its own, and what comes out is judged.
//!
//! `bench [P1 P2 …] [--rounds N] [--seconds S] [--only CONTENDER,…] [--out DIR] [--drivers DIR] [--add] [--docs]`; `bench/run` builds
//! the drivers before. Ratios are taken within a round; medians over the rounds are judged.

mod bars;
mod cases;
mod commands;
mod contenders;
mod docs;
mod driver;
mod machine;
mod plot;
mod results;
mod run;
mod server;
mod table;
mod team;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cases::Case;
use contenders::Programs;
use results::CaseResult;
use run::Settings;
use rustix::fs::{FlockOperation, flock};

/// What was typed.
#[derive(Debug)]
struct Arguments {
    settings: Settings,
    cases: Vec<Case>,
    /// Whether what earlier runs have measured stays.
    add: bool,
    /// Whether the page in docs/ is written anew.
    docs: bool,
}

fn main() -> ExitCode {
    let arguments = match read(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(problem) => {
            eprintln!("bench: {problem}");
            return ExitCode::from(2);
        }
    };
    // Whoever measures beside another one measures that one too. It is free when this process ends, however it ends.
    let _only_one = match only_one() {
        Ok(lock) => lock,
        Err(problem) => {
            eprintln!("bench: {problem}");
            return ExitCode::from(3);
        }
    };
    match measure(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("bench: {problem}");
            ExitCode::from(4)
        }
    }
}

fn only_one() -> Result<File, String> {
    let path = std::env::temp_dir().join("tenure-bench.lock");
    let open = File::options().create(true).append(true).open(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    flock(&open, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| format!("another run is under way ({} is locked): never two at once", path.display()))?;
    Ok(open)
}

/// Returns whether all bars are met.
fn measure(Arguments { settings, cases, add, docs }: &Arguments) -> std::io::Result<bool> {
    std::fs::create_dir_all(&settings.out)?;
    let machine = machine::about(settings);
    println!("{machine}");
    let mut results = if *add { earlier(&settings.out)? } else { Vec::new() };
    for case in cases {
        put(&mut results, run::case(settings, case, &machine)?);
        // After each, so that what was measured is not lost with what comes after it.
        write(&settings.out, &results)?;
    }
    let verdicts = bars::judge(&results);
    print!("\n{}", bars::list(&verdicts));
    if *docs {
        docs::update(Path::new("docs"), &results)?;
    }
    println!("\nreport.md, results.json and the plots are in {}", settings.out.display());
    Ok(verdicts.iter().all(bars::Verdict::is_met))
}

/// What earlier runs have left there, if they have.
fn earlier(out: &Path) -> std::io::Result<Vec<CaseResult>> {
    let path = out.join("results.json");
    if path.exists() { Ok(serde_json::from_str(&std::fs::read_to_string(path)?)?) } else { Ok(Vec::new()) }
}

/// In the order of the scenarios, instead of what was there of the same one.
fn put(results: &mut Vec<CaseResult>, new: CaseResult) {
    results.retain(|result| result.id != new.id);
    results.push(new);
    let order: Vec<&str> = cases::all().iter().map(|case| case.id).collect();
    results.sort_by_key(|result| order.iter().position(|id| *id == result.id));
}

fn write(out: &Path, results: &[CaseResult]) -> std::io::Result<()> {
    std::fs::write(out.join("results.json"), serde_json::to_string_pretty(results)?)?;
    std::fs::write(out.join("report.md"), docs::page(results, ""))?;
    docs::plots(out, results)
}

fn read(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let beside = std::env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_owned)).unwrap_or_default();
    let programs = Programs { others: beside.join("../bench"), rust: beside };
    let mut settings = Settings {
        programs,
        out: PathBuf::from("target/bench/results"),
        rounds: 9,
        seconds: 1.5,
        drain_seconds: 60.0,
        holds: 100_000,
        hold_seconds: 60.0,
        lease_ms: 3000,
        only: Vec::new(),
    };
    let (mut chosen, mut add, mut docs) = (Vec::new(), false, false);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match &*word {
            "--rounds" => settings.rounds = number(&word, &value()?)?,
            "--seconds" => settings.seconds = number(&word, &value()?)?,
            "--holds" => settings.holds = number(&word, &value()?)?,
            "--hold-seconds" => settings.hold_seconds = number(&word, &value()?)?,
            "--only" => settings.only = value()?.split(',').map(str::to_owned).collect(),
            "--out" => settings.out = value()?.into(),
            "--drivers" => settings.programs.others = value()?.into(),
            "--add" => add = true,
            "--docs" => docs = true,
            group if group.starts_with('P') => chosen.extend(of(group)?),
            _ => {
                return Err(format!(
                    "{word} is unknown; allowed: P1 to P11, --rounds, --seconds, --holds, --hold-seconds, --only, --out, --drivers, --add, --docs"
                ));
            }
        }
    }
    let cases = if chosen.is_empty() { cases::all() } else { chosen };
    Ok(Arguments { settings, cases, add, docs })
}

fn of(group: &str) -> Result<Vec<Case>, String> {
    let cases: Vec<Case> = cases::all().into_iter().filter(|case| case.is_in(group)).collect();
    if cases.is_empty() { Err(format!("{group} is unknown; allowed: P1 to P11")) } else { Ok(cases) }
}

fn number<T: std::str::FromStr>(option: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{option} {value}: not a number"))
}
