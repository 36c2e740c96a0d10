//! Allocations of this process, as the shim counts them that was loaded before the C library.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::LazyLock;

/// How many there were so far; `None` if nobody counts.
pub(crate) fn allocations() -> Option<u64> {
    static COUNT: LazyLock<Option<File>> = LazyLock::new(|| File::open(std::env::var_os("TENURE_BENCH_HEAP")?).ok());
    let mut count = [0; 8];
    COUNT.as_ref()?.read_exact_at(&mut count, 0).ok()?;
    Some(u64::from_ne_bytes(count))
}

/// Memory of this process that is not on disk, in KiB.
pub(crate) fn resident_kib() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
