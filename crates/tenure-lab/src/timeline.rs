//! The timeline of a way: what each actor believed and did, and when.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::Serialize;

/// What goes on for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum During {
    /// Thinks that the lock is its own.
    Believes,
    Waits,
    /// Does not run: stopped, or busy with something else than the lock.
    Paused,
    /// What a store says of the lock.
    Held,
}

/// What happens in a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Moment {
    /// A step that is neither good nor bad.
    Did,
    /// The shop took the write.
    Sold,
    /// The shop took the write of one whose time was over.
    Stale,
    /// The shop refused the write.
    Refused,
    /// Was told that the lock is lost.
    Told,
    Killed,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Span {
    pub(crate) lane: usize,
    pub(crate) from_us: u64,
    pub(crate) to_us: u64,
    pub(crate) what: During,
    pub(crate) text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Mark {
    pub(crate) lane: usize,
    pub(crate) at_us: u64,
    pub(crate) what: Moment,
    pub(crate) text: String,
}

/// One lane for each who takes part.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Timeline {
    pub(crate) lanes: Vec<String>,
    pub(crate) spans: Vec<Span>,
    pub(crate) marks: Vec<Mark>,
    pub(crate) length_us: u64,
}

/// A span that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenSpan(usize);

/// Where all participants note what they see. Clones write to the same timeline.
#[derive(Debug, Clone)]
pub(crate) struct Recorder {
    since: Instant,
    drawn: Arc<Mutex<Drawn>>,
}

#[derive(Debug, Default)]
struct Drawn {
    timeline: Timeline,
    /// By the span's number.
    open: Vec<bool>,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Self { since: Instant::now(), drawn: Arc::default() }
    }

    /// Adds a lane below the others.
    pub(crate) fn lane(&self, name: &str) -> usize {
        let lanes = &mut self.drawn().timeline.lanes;
        lanes.push(name.to_owned());
        lanes.len() - 1
    }

    pub(crate) fn begin(&self, lane: usize, at: Instant, what: During, text: impl Into<String>) -> OpenSpan {
        let from_us = self.us(at);
        let mut drawn = self.drawn();
        drawn.timeline.spans.push(Span { lane, from_us, to_us: from_us, what, text: text.into() });
        drawn.open.push(true);
        OpenSpan(drawn.open.len() - 1)
    }

    /// Ends a span. The first end counts.
    pub(crate) fn end(&self, OpenSpan(span): OpenSpan, at: Instant) {
        let to_us = self.us(at);
        let mut drawn = self.drawn();
        if std::mem::take(&mut drawn.open[span]) {
            drawn.timeline.spans[span].to_us = to_us;
        }
    }

    pub(crate) fn mark(&self, lane: usize, at: Instant, what: Moment, text: impl Into<String>) {
        let at_us = self.us(at);
        self.drawn().timeline.marks.push(Mark { lane, at_us, what, text: text.into() });
    }

    /// All that was noted, from the first note on. What has not ended ends now.
    pub(crate) fn finish(&self) -> Timeline {
        let now = self.us(Instant::now());
        let drawn = self.drawn();
        let mut timeline = drawn.timeline.clone();
        let spans = timeline.spans.iter().flat_map(|span| [span.from_us, span.to_us]);
        let times: Vec<_> = spans.chain(timeline.marks.iter().map(|mark| mark.at_us)).collect();
        let (first, last) = (times.iter().copied().min(), times.iter().copied().max());
        // Others may still be writing: the last note can be later than now.
        let (first, end) = (first.unwrap_or(now), last.unwrap_or(now).max(now));
        for (span, open) in timeline.spans.iter_mut().zip(&drawn.open) {
            span.to_us = if *open { end } else { span.to_us } - first;
            span.from_us -= first;
        }
        timeline.marks.iter_mut().for_each(|mark| mark.at_us -= first);
        timeline.marks.sort_by_key(|mark| mark.at_us);
        timeline.length_us = (end - first).max(1);
        timeline
    }

    fn us(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.since).as_micros()).unwrap_or(u64::MAX)
    }

    fn drawn(&self) -> MutexGuard<'_, Drawn> {
        self.drawn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_has_not_ended_ends_with_the_story_and_the_first_end_counts() {
        let recorder = Recorder::new();
        let (a, b) = (recorder.lane("A"), recorder.lane("B"));
        let at = |ms| recorder.since + Duration::from_millis(ms);
        let first = recorder.begin(a, at(10), During::Believes, "holds");
        recorder.begin(b, at(20), During::Waits, "waits");
        recorder.end(first, at(30));
        recorder.end(first, at(40));
        recorder.mark(b, at(35), Moment::Did, "later");
        recorder.mark(a, at(25), Moment::Did, "sooner");
        let timeline = recorder.finish();
        assert_eq!((timeline.spans[0].from_us, timeline.spans[0].to_us), (0, 20_000));
        assert_eq!(timeline.spans[1].from_us, 10_000);
        assert_eq!(timeline.spans[1].to_us, timeline.length_us);
        assert_eq!(timeline.marks.iter().map(|mark| &*mark.text).collect::<Vec<_>>(), ["sooner", "later"]);
    }
}
