//! A story: one failure, played in several ways, and what each of them must show.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Serialize, Serializer};

use super::stage::{Bill, Stage};
use super::timeline::Timeline;
use super::upset::{Played, Upset};

/// One failure.
pub(crate) struct Story {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// What to take home.
    pub(crate) lesson: &'static str,
    /// How many units the shop has.
    pub(crate) stock: u32,
    pub(crate) ways: &'static [Way],
}

/// One way to lock, and what becomes of it.
pub(crate) struct Way {
    pub(crate) kind: Kind,
    /// What it does, in a line.
    pub(crate) how: &'static str,
    pub(crate) play: fn(&Stage) -> Played<Outcome>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// What the documents warn of.
    Naive,
    /// What common libraries do.
    Usual,
    Tenure,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
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

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Claim {
    pub(crate) what: String,
    pub(crate) held: bool,
}

/// A story as it went.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) lesson: &'static str,
    /// Whether all claims held.
    pub(crate) held: bool,
    #[serde(rename = "took_ms", serialize_with = "in_millis")]
    pub(crate) took: Duration,
    pub(crate) rows: Vec<Row>,
}

impl Report {
    /// Whether a part of it was not played.
    pub(crate) fn skipped(&self) -> bool {
        self.rows.iter().any(|row| row.skipped)
    }
}

/// A way as it went.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) way: Kind,
    pub(crate) how: &'static str,
    pub(crate) stock: u64,
    pub(crate) sold: u64,
    pub(crate) oversold: u64,
    pub(crate) stale_writes: u64,
    pub(crate) refused_writes: u64,
    #[serde(rename = "waited_ms", serialize_with = "in_millis")]
    pub(crate) waited: Duration,
    /// How many waited in vain.
    pub(crate) gave_up: u64,
    pub(crate) requests: u64,
    pub(crate) verdict: String,
    /// Whether it was not played, because something is not installed.
    pub(crate) skipped: bool,
    pub(crate) claims: Vec<Claim>,
    #[serde(rename = "took_ms", serialize_with = "in_millis")]
    pub(crate) took: Duration,
    pub(crate) timeline: Timeline,
}

impl Row {
    pub(crate) fn held(&self) -> bool {
        self.claims.iter().all(|claim| claim.held)
    }

    /// What was claimed and is not so.
    pub(crate) fn failures(&self) -> impl Iterator<Item = &str> {
        self.claims.iter().filter(|claim| !claim.held).map(|claim| &*claim.what)
    }
}

fn in_millis<S: Serializer>(d: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(crate::output::millis(*d))
}

impl Story {
    /// Plays all ways in directories below `dir`, and tells `seen` of each when it is over.
    pub(crate) fn play(
        &self,
        program: &OsString,
        dir: &Path,
        mut before: impl FnMut(&Way),
        mut after: impl FnMut(&Row),
    ) -> Report {
        let start = Instant::now();
        let mut rows = Vec::with_capacity(self.ways.len());
        for (n, way) in self.ways.iter().enumerate() {
            before(way);
            let row = self.play_way(way, program.clone(), &dir.join(format!("{}-{n}", self.id)));
            after(&row);
            rows.push(row);
        }
        let held = rows.iter().all(Row::held);
        Report { id: self.id, title: self.title, lesson: self.lesson, held, took: start.elapsed(), rows }
    }

    fn play_way(&self, way: &Way, program: OsString, dir: &Path) -> Row {
        let start = Instant::now();
        let played = self.played(way, program, dir);
        // Its servers and actors are gone by now: nothing writes here any more.
        drop(std::fs::remove_dir_all(dir));
        let (bill, Outcome { verdict, mut claims, skipped }) = match played {
            Ok((bill, Ok(outcome))) => (Some(bill), outcome),
            Ok((bill, Err(upset))) => (Some(bill), unplayed(&upset)),
            Err(upset) => (None, unplayed(&upset)),
        };
        let sales = bill.as_ref().map(|bill| bill.sales);
        let (sold, oversold, stale_writes) = sales.map_or((0, 0, 0), |sales| (sales.sold, sales.oversold(), sales.stale));
        if way.kind == Kind::Tenure {
            claims.push(Claim { what: "sells no unit too many".to_owned(), held: oversold == 0 });
            claims.push(Claim { what: "lets no stale write through".to_owned(), held: stale_writes == 0 });
        }
        let waits = bill.as_ref().map(|bill| bill.waits).unwrap_or_default();
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
            requests: bill.as_ref().map_or(0, |bill| bill.requests),
            verdict,
            skipped,
            claims,
            took: start.elapsed(),
            timeline: bill.map(|bill| bill.timeline).unwrap_or_default(),
        }
    }

    /// The bill is made out also for a way that could not be played to its end.
    fn played(&self, way: &Way, program: OsString, dir: &Path) -> Played<(Bill, Played<Outcome>)> {
        let stage = Stage::new(program, dir, self.stock)?;
        let outcome = (way.play)(&stage);
        Ok((stage.bill()?, outcome))
    }
}

fn unplayed(upset: &Upset) -> Outcome {
    Outcome::new("could not be played to its end").claim(format!("the story can be played: {upset}"), false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::lab::shop::{ITEM, Sale, Shop};

    fn played(kind: Kind, play: fn(&Stage) -> Played<Outcome>) -> Played<Report> {
        let dir = tempfile::tempdir()?;
        // A story needs a place that lives as long as the program.
        let ways: &'static [Way] = Box::leak(Box::new([Way { kind, how: "", play }]));
        let story = Story { id: "F0", title: "", lesson: "", stock: 1, ways };
        Ok(story.play(&OsString::from("nothing"), dir.path(), |_| {}, |_| {}))
    }

    fn sells_twice(stage: &Stage) -> Played<Outcome> {
        let mut shop = Shop::enter(&stage.file("shop.db"))?;
        let (a, b) = (shop.granted("A", ITEM, None)?, shop.granted("B", ITEM, None)?);
        for (who, grant) in [("B", b), ("A", a)] {
            shop.sell(&Sale { who, item: ITEM, left: 0, under: Some(grant), token: None, lease: None })?;
        }
        Ok(Outcome::new("two of one").claim("two are sold", stage.sales()?.sold == 2))
    }

    #[test]
    fn a_row_of_tenure_that_sells_one_too_many_is_a_failure_whatever_it_claims() -> Played<()> {
        let report = played(Kind::Tenure, sells_twice)?;
        let row = &report.rows[0];
        assert_eq!((row.sold, row.oversold, row.stale_writes, report.held), (2, 1, 1, false));
        assert_eq!(row.failures().collect::<Vec<_>>(), ["sells no unit too many", "lets no stale write through"]);
        assert!(played(Kind::Naive, sells_twice)?.held, "the others may");
        Ok(())
    }

    #[test]
    fn a_claim_that_does_not_hold_and_a_story_that_cannot_be_played_are_failures() -> Played<()> {
        let report = played(Kind::Usual, |_| Ok(Outcome::new("").claim("so", true).claim("not so", false)))?;
        assert_eq!((report.held, report.rows[0].failures().collect::<Vec<_>>()), (false, vec!["not so"]));
        let report = played(Kind::Usual, |stage| stage.server().map(|_| Outcome::new("")))?;
        assert!(!report.held && report.rows[0].failures().all(|what| what.starts_with("the story can be played: ")));
        Ok(())
    }
}
