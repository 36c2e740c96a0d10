//! A story: one failure, played in several ways, with claims about each; and the report of it.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Serialize, Serializer};
use tenure::duration;

use crate::error::{LabError, Result};
use crate::launcher::Launcher;
use crate::testbed::{Testbed, Totals};
use crate::timeline::Timeline;

/// One failure.
#[derive(Debug)]
pub struct Story {
    /// What it is asked for by, such as `F1`.
    pub id: &'static str,
    /// What goes wrong.
    pub title: &'static str,
    /// What a reader learns from it.
    pub lesson: &'static str,
    /// How many units the shop has.
    pub stock: u32,
    /// The ways to lock that are compared.
    pub ways: &'static [Way],
}

/// One way to lock.
#[derive(Debug)]
pub struct Way {
    /// Whose way it is.
    pub kind: Kind,
    /// What it does, in a line.
    pub how: &'static str,
    pub(crate) play: fn(&Testbed) -> Result<Outcome>,
}

/// Whose way to lock it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The way that documentation warns of.
    Naive,
    /// The way of common libraries.
    Usual,
    /// The way of Tenure.
    Tenure,
}

impl Kind {
    /// The name in tables and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Naive => "naive",
            Self::Usual => "usual",
            Self::Tenure => "tenure",
        }
    }
}

/// What was seen: a line for people, and what must be so.
#[derive(Debug)]
pub(crate) struct Outcome {
    verdict: String,
    claims: Vec<Claim>,
    skipped: bool,
}

impl Outcome {
    pub(crate) fn new(verdict: impl Into<String>) -> Self {
        Self { verdict: verdict.into(), claims: Vec::new(), skipped: false }
    }

    /// It was not played, and this is why.
    pub(crate) fn skipped(why: &str) -> Self {
        Self { verdict: format!("SKIPPED: {why}"), claims: Vec::new(), skipped: true }
    }

    /// Adds what must be so. If it is not, the lab fails.
    pub(crate) fn claim(mut self, what: impl Into<String>, held: bool) -> Self {
        self.claims.push(Claim { what: what.into(), held });
        self
    }
}

/// A statement that was checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Claim {
    what: String,
    held: bool,
}

/// The result of a story.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The id of the story.
    pub id: &'static str,
    /// The title of the story.
    pub title: &'static str,
    /// The lesson of the story.
    pub lesson: &'static str,
    /// Whether all claims held.
    pub held: bool,
    /// How long all ways took.
    #[serde(rename = "took_ms", serialize_with = "in_millis")]
    pub took: Duration,
    /// The result of each way.
    pub rows: Vec<Row>,
}

impl Report {
    /// Whether one of the ways was skipped.
    pub fn skipped(&self) -> bool {
        self.rows.iter().any(|row| row.skipped)
    }
}

/// The result of a way.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Whose way it is.
    pub way: Kind,
    /// What it does, in a line.
    pub how: &'static str,
    /// How many units the shop had.
    pub stock: u64,
    /// How many units it sold.
    pub sold: u64,
    /// How many units it sold and did not have.
    pub oversold: u64,
    /// How many stale writes the shop accepted.
    pub stale_writes: u64,
    /// How many writes the shop refused.
    pub refused_writes: u64,
    /// How long all actors together waited for the lock.
    #[serde(rename = "waited_ms", serialize_with = "in_millis")]
    pub waited: Duration,
    /// How many actors waited without being granted the lock.
    pub gave_up: u64,
    /// How many requests clients sent to the servers.
    pub requests: u64,
    /// What was seen, in a line.
    pub verdict: String,
    /// Whether it was not played, because a program is not installed.
    pub skipped: bool,
    claims: Vec<Claim>,
    /// How long it took.
    #[serde(rename = "took_ms", serialize_with = "in_millis")]
    pub took: Duration,
    pub(crate) timeline: Timeline,
}

impl Row {
    /// Whether all claims held.
    pub fn held(&self) -> bool {
        self.claims.iter().all(|claim| claim.held)
    }

    /// The claims that did not hold.
    pub fn failures(&self) -> impl Iterator<Item = &str> {
        self.claims.iter().filter(|claim| !claim.held).map(|claim| &*claim.what)
    }

    /// How long was waited, and whether without success, for a table.
    pub fn waited_shown(&self) -> String {
        let waited = duration::show(Duration::from_millis(crate::millis(self.waited)));
        if self.gave_up > 0 { format!("{waited}, in vain") } else { waited }
    }
}

fn in_millis<S: Serializer>(d: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(crate::millis(*d))
}

impl Story {
    /// Plays all ways in directories below `dir`. Calls `before` and `after` for each.
    pub fn play(&self, launcher: &Launcher, dir: &Path, mut before: impl FnMut(&Way), mut after: impl FnMut(&Row)) -> Report {
        let start = Instant::now();
        let mut rows = Vec::with_capacity(self.ways.len());
        for (n, way) in self.ways.iter().enumerate() {
            before(way);
            let row = self.play_way(way, launcher.clone(), &dir.join(format!("{}-{n}", self.id)));
            after(&row);
            rows.push(row);
        }
        let held = rows.iter().all(Row::held);
        Report { id: self.id, title: self.title, lesson: self.lesson, held, took: start.elapsed(), rows }
    }

    fn play_way(&self, way: &Way, launcher: Launcher, dir: &Path) -> Row {
        let start = Instant::now();
        let played = self.played(way, launcher, dir);
        // Its servers and actors have ended: no process writes here any more.
        drop(std::fs::remove_dir_all(dir));
        let (totals, Outcome { verdict, mut claims, skipped }) = match played {
            Ok((totals, Ok(outcome))) => (Some(totals), outcome),
            Ok((totals, Err(error))) => (Some(totals), unplayed(&error)),
            Err(error) => (None, unplayed(&error)),
        };
        let sales = totals.as_ref().map(|totals| totals.sales);
        let (sold, oversold, stale_writes) = sales.map_or((0, 0, 0), |sales| (sales.sold, sales.oversold(), sales.stale));
        if way.kind == Kind::Tenure {
            claims.push(Claim { what: "sells no unit too many".to_owned(), held: oversold == 0 });
            claims.push(Claim { what: "lets no stale write through".to_owned(), held: stale_writes == 0 });
        }
        let waits = totals.as_ref().map(|totals| totals.waits).unwrap_or_default();
        Row {
            way: way.kind,
            how: way.how,
            stock: self.stock.into(),
            sold,
            oversold,
            stale_writes,
            refused_writes: sales.map_or(0, |sales| sales.refused),
            waited: waits.total,
            gave_up: waits.in_vain,
            requests: totals.as_ref().map_or(0, |totals| totals.requests),
            verdict,
            skipped,
            claims,
            took: start.elapsed(),
            timeline: totals.map(|totals| totals.timeline).unwrap_or_default(),
        }
    }

    /// The totals are taken also for a way that could not be played to its end.
    fn played(&self, way: &Way, launcher: Launcher, dir: &Path) -> Result<(Totals, Result<Outcome>)> {
        let testbed = Testbed::new(launcher, dir, self.stock)?;
        let outcome = (way.play)(&testbed);
        Ok((testbed.totals()?, outcome))
    }
}

fn unplayed(error: &LabError) -> Outcome {
    Outcome::new("could not be played to its end").claim(format!("the story can be played: {error}"), false)
}

#[cfg(test)]
mod tests {
    use std::ffi::{OsStr, OsString};

    use super::*;
    use crate::shop::{ITEM, Sale, Shop};

    fn played(kind: Kind, play: fn(&Testbed) -> Result<Outcome>) -> Result<Report> {
        let dir = tempfile::tempdir()?;
        // A story needs a place that lives as long as the program.
        let ways: &'static [Way] = Box::leak(Box::new([Way { kind, how: "", play }]));
        let story = Story { id: "F0", title: "", lesson: "", stock: 1, ways };
        let refused =
            |_: &OsStr, _: &[OsString]| Err(std::io::Error::other("the tests of the lab's own code start no processes"));
        let launcher = Launcher { redis_server: "nothing".into(), own_program: "nothing".into(), tied: refused };
        Ok(story.play(&launcher, dir.path(), |_| {}, |_| {}))
    }

    fn sells_twice(testbed: &Testbed) -> Result<Outcome> {
        let mut shop = Shop::enter(&testbed.file("shop.db"))?;
        let (a, b) = (shop.granted("A", ITEM, None)?, shop.granted("B", ITEM, None)?);
        for (who, grant) in [("B", b), ("A", a)] {
            shop.sell(&Sale { who, item: ITEM, left: 0, under: Some(grant), token: None, lease: None })?;
        }
        Ok(Outcome::new("two of one").claim("two are sold", testbed.sales()?.sold == 2))
    }

    #[test]
    fn a_row_of_tenure_that_sells_one_too_many_is_a_failure_whatever_it_claims() -> Result<()> {
        let report = played(Kind::Tenure, sells_twice)?;
        let row = &report.rows[0];
        assert_eq!((row.sold, row.oversold, row.stale_writes, report.held), (2, 1, 1, false));
        assert_eq!(row.failures().collect::<Vec<_>>(), ["sells no unit too many", "lets no stale write through"]);
        assert!(played(Kind::Naive, sells_twice)?.held, "the others may");
        Ok(())
    }

    #[test]
    fn a_claim_that_does_not_hold_and_a_story_that_cannot_be_played_are_failures() -> Result<()> {
        let report = played(Kind::Usual, |_| Ok(Outcome::new("").claim("so", true).claim("not so", false)))?;
        assert_eq!((report.held, report.rows[0].failures().collect::<Vec<_>>()), (false, vec!["not so"]));
        let report = played(Kind::Usual, |testbed| testbed.server().map(|_| Outcome::new("")))?;
        assert!(!report.held && report.rows[0].failures().all(|what| what.starts_with("the story can be played: ")));
        Ok(())
    }
}
