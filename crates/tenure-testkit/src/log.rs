//! Logs and events that a test can read.

use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// A writer for subscribers. Clones write to the same log.
#[derive(Debug, Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// All that was logged so far.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("not poisoned")).into_owned()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("not poisoned").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A subscriber that keeps the library's events: the message of each, and its fields as text. Clones share what they keep.
#[derive(Debug, Clone)]
pub struct Events {
    most_verbose: Level,
    kept: Arc<Mutex<Vec<(String, String)>>>,
}

impl Events {
    /// Keeps the events of a level and of all that are less verbose.
    pub fn up_to(most_verbose: Level) -> Self {
        Self { most_verbose, kept: Arc::default() }
    }

    /// The events so far.
    pub fn kept(&self) -> MutexGuard<'_, Vec<(String, String)>> {
        self.kept.lock().expect("not poisoned")
    }

    /// How many messages contain some words.
    pub fn count(&self, words: &str) -> usize {
        self.kept().iter().filter(|(message, _)| message.contains(words)).count()
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    others: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            self.others += &format!("{}={value:?} ", field.name());
        }
    }
}

impl Subscriber for Events {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tenure") && *metadata.level() <= self.most_verbose
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.kept().push((fields.message, fields.others));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
