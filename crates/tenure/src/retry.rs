//! [`RetryPolicy`]: how often and how fast an unavailable store is asked again.

use std::time::Duration;

/// How an unavailable store is asked again: a number of attempts in a row, with growing, jittered pauses between them.
///
/// It applies to stores that cannot be reached or cannot serve now; waiting for a busy lock is not
/// a failed attempt. `try_lock` asks a second time at once (a connection may have gone stale) and then reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Failed attempts in a row after which the error is reported. At least 1.
    pub attempts: u32,
    /// The longest first pause; each next one doubles.
    pub first_pause: Duration,
    /// The longest pause.
    pub longest_pause: Duration,
}

impl Default for RetryPolicy {
    /// Ten attempts, pauses of up to 50 ms to 2 s: five to nine seconds in all.
    fn default() -> Self {
        Self { attempts: 10, first_pause: Duration::from_millis(50), longest_pause: Duration::from_secs(2) }
    }
}

impl RetryPolicy {
    /// Forty attempts, about a minute in all: for stores where another server takes over when one fails. The default
    /// there.
    #[must_use]
    pub fn over_a_failover() -> Self {
        Self { attempts: 40, ..Self::default() }
    }

    /// Asks again for as long as the caller is willing to wait.
    #[must_use]
    pub fn for_ever() -> Self {
        Self { attempts: u32::MAX, ..Self::default() }
    }

    /// The pause after the given number of failures in a row: between half of and the full doubled pause.
    pub(crate) fn pause(&self, failures: u32) -> Duration {
        let doubled = self.first_pause.saturating_mul(1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX));
        let full = doubled.min(self.longest_pause);
        full / 2 + jitter(full / 2)
    }
}

/// A random part of a duration, so that many clients do not come back at the same moment.
pub(crate) fn jitter(d: Duration) -> Duration {
    let random = getrandom::u32().unwrap_or(u32::MAX / 2);
    d.mul_f64(f64::from(random) / f64::from(u32::MAX))
}
