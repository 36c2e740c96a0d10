//! Naive clients: one waits by recursion, one relies on a message that may be lost.

use std::time::{Duration, Instant};

use redis::Connection;

use crate::error::{LabError, Result};
use crate::server::command_of;
use crate::setnx_lock::connect;

/// Sends a command until it is granted, each time one call deeper, on a stack of so many bytes.
pub(crate) fn recurse(port: u16, command: Vec<String>, stack: usize) -> Result<u64> {
    let mut raw = connect(port)?;
    let retry = move || lock_or_retry(&mut raw, &command, 1);
    let thread = std::thread::Builder::new().stack_size(stack).spawn(retry)?;
    thread.join().map_err(|_| LabError::new("the thread has panicked"))?
}

fn lock_or_retry(raw: &mut Connection, command: &[String], attempt: u64) -> Result<u64> {
    if command_of(command).query::<Option<String>>(raw)?.is_some() {
        return Ok(attempt);
    }
    let attempts = lock_or_retry(raw, command, attempt + 1)?;
    // Something is left to do after the call, so that no compiler makes a loop of it; Java's makes none anyway.
    Ok(std::hint::black_box(attempts))
}

/// Listens to a channel, and subscribes again when its connection breaks. What was said meanwhile is not said again.
pub(crate) struct Listener {
    port: u16,
    channel: String,
    raw: Connection,
}

impl Listener {
    pub(crate) fn subscribe(port: u16, channel: String) -> Result<Self> {
        let mut raw = connect(port)?;
        raw.send_packed_command(&command_of(&["SUBSCRIBE", &channel]).get_packed_command())?;
        raw.recv_response()?;
        Ok(Self { port, channel, raw })
    }

    /// Waits for a message.
    pub(crate) fn hear(&mut self, limit: Duration) -> Result<bool> {
        let give_up = Instant::now() + limit;
        loop {
            let left = give_up.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            self.raw.set_read_timeout(Some(left))?;
            match self.raw.recv_response() {
                Ok(_) => return Ok(true),
                Err(error) if error.is_timeout() => {}
                Err(_) => *self = Self::subscribe(self.port, self.channel.clone())?,
            }
        }
    }
}
