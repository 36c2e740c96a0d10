//! CLOCK_MONOTONIC, which all processes of a machine share; CPU time and memory of this one.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds on the clock that all processes share.
pub(super) fn now() -> u64 {
    nanos(clock_gettime(ClockId::Monotonic))
}

/// Nanoseconds of CPU that this process has used.
pub(super) fn cpu() -> u64 {
    nanos(clock_gettime(ClockId::ProcessCPUTime))
}

/// Memory of this process that is not on disk, in KiB; `None` where the system does not tell.
pub(super) fn resident_kib() -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn nanos(time: Timespec) -> u64 {
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
