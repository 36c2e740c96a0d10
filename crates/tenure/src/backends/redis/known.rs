//! What other clients have said of themselves, so that those who look often do not ask each time.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::shared::lock;
use crate::name::ClientId;

/// How long an answer is believed: a client's words do not change.
const BELIEVED: Duration = Duration::from_secs(60);
/// How many are remembered.
const MOST: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct KnownClients(Mutex<HashMap<ClientId, (Instant, String)>>);

impl KnownClients {
    pub(super) fn get(&self, client: ClientId) -> Option<String> {
        let known = lock(&self.0);
        known.get(&client).filter(|(since, _)| since.elapsed() < BELIEVED).map(|(_, about)| about.clone())
    }

    pub(super) fn note(&self, client: ClientId, about: &str) {
        let mut known = lock(&self.0);
        if known.len() >= MOST {
            known.retain(|_, (since, _)| since.elapsed() < BELIEVED);
        }
        if known.len() < MOST {
            known.insert(client, (Instant::now(), about.to_owned()));
        }
    }
}
