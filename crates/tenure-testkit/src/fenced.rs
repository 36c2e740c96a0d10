//! A fenced resource: it keeps the largest token per name, and rejects writes with a smaller one.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard};

/// Shared by all clones of it.
#[derive(Debug, Clone, Default)]
pub struct Fenced {
    resources: Arc<Mutex<HashMap<String, Log>>>,
}

/// Writes in the order in which they came.
#[derive(Debug, Clone, Default)]
pub struct Log {
    pub accepted: Vec<Write>,
    pub rejected: Vec<Write>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    pub token: u64,
    pub who: String,
}

/// Why a write is not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejected {
    /// A write with a larger token came before.
    Stale { largest: Write },
    /// Another writer has the same token: one of the two is no holder, and no fence can tell which.
    Clash { with: Write },
}

impl Fenced {
    pub fn write(&self, resource: &str, token: tenure::Token, who: impl Display) -> Result<(), Rejected> {
        let write = Write { token: token.get(), who: who.to_string() };
        let mut resources = self.resources();
        let log = resources.entry(resource.to_owned()).or_default();
        let rejected = match log.accepted.last().cloned() {
            Some(largest) if write.token < largest.token => Rejected::Stale { largest },
            Some(with) if write.token == with.token && write.who != with.who => Rejected::Clash { with },
            _ => {
                log.accepted.push(write);
                return Ok(());
            }
        };
        log.rejected.push(write);
        Err(rejected)
    }

    pub fn log(&self, resource: &str) -> Log {
        self.resources().get(resource).cloned().unwrap_or_default()
    }

    fn resources(&self) -> MutexGuard<'_, HashMap<String, Log>> {
        self.resources.lock().expect("not poisoned")
    }
}

impl Log {
    /// Who has written, each once per turn.
    pub fn writers(&self) -> Vec<&str> {
        let mut writers: Vec<&str> = self.accepted.iter().map(|write| &*write.who).collect();
        writers.dedup();
        writers
    }
}
