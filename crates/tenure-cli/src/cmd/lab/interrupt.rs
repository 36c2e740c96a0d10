//! An interrupted lab removes its directory. Its servers and actors end with it.

use std::path::Path;

use nix::sys::signal::{SigSet, Signal};

/// Removes a directory and ends at SIGINT, SIGTERM or SIGHUP. To be called before any thread is started.
pub(crate) fn remove_on_signal(dir: &Path) -> nix::Result<()> {
    let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
    // Threads inherit the mask, so that only the waiting thread gets them.
    signals.thread_block()?;
    let dir = dir.to_owned();
    std::thread::spawn(move || {
        let Ok(signal) = signals.wait() else { return };
        drop(std::fs::remove_dir_all(dir));
        std::process::exit(128 + signal as i32);
    });
    Ok(())
}
