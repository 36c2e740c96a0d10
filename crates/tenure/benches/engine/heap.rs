//! Allocations of all threads, counted by a shim before the C library: an allocator of our own would be `unsafe` code.

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::LazyLock;

const SOURCE: &str = include_str!("heap.c");
/// Where the shim counts.
const COUNTS: &str = "TENURE_BENCH_HEAP";

/// Runs this program again with its allocations counted. `None` if they are counted already, or cannot be here.
pub(crate) fn run_counted() -> Option<ExitCode> {
    if std::env::var_os(COUNTS).is_some() {
        return None;
    }
    let dir = tempfile::tempdir().ok()?;
    let (shim, counts) = (dir.path().join("heap.so"), dir.path().join("count"));
    if !build(&shim) {
        println!("SKIPPED: allocations are not counted, which takes a C compiler");
        return None;
    }
    std::fs::write(&counts, 0_u64.to_ne_bytes()).ok()?;
    let mut again = Command::new(std::env::current_exe().ok()?);
    again.args(std::env::args_os().skip(1)).env("LD_PRELOAD", &shim).env(COUNTS, &counts);
    let status = again.status().ok()?;
    Some(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

fn build(shim: &Path) -> bool {
    let mut command = Command::new("cc");
    command.args(["-O2", "-shared", "-fPIC", "-x", "c", "-", "-o"]).arg(shim).stdin(Stdio::piped());
    let Ok(mut compiler) = command.spawn() else { return false };
    let written = compiler.stdin.take().is_some_and(|mut input| input.write_all(SOURCE.as_bytes()).is_ok());
    written && compiler.wait().is_ok_and(|status| status.success())
}

/// How many there were so far; zero if nobody counts.
pub(crate) fn allocations() -> u64 {
    static COUNT: LazyLock<Option<std::fs::File>> = LazyLock::new(|| std::fs::File::open(std::env::var_os(COUNTS)?).ok());
    let mut count = [0; 8];
    match &*COUNT {
        Some(file) if file.read_exact_at(&mut count, 0).is_ok() => u64::from_ne_bytes(count),
        _ => 0,
    }
}
