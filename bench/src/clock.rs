//! CLOCK_MONOTONIC, which all processes of a machine share, and the CPU time of this one.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds on the clock that all processes share.
#[must_use]
pub fn now() -> u64 {
    nanos(clock_gettime(ClockId::Monotonic))
}

/// Nanoseconds of CPU that this process has used.
#[must_use]
pub fn cpu() -> u64 {
    nanos(clock_gettime(ClockId::ProcessCPUTime))
}

fn nanos(time: Timespec) -> u64 {
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
