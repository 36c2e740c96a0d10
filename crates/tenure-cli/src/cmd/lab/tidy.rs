//! What an interrupted lab leaves behind: nothing. Servers and actors end with it, and its directory goes first.

use std::path::Path;

use nix::sys::signal::{SigSet, Signal};

/// Removes a directory and ends when somebody interrupts the lab. To be called before any thread is started.
pub(crate) fn on_interrupt(dir: &Path) -> nix::Result<()> {
    let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
    // So that they come to the one thread that waits for them.
    signals.thread_block()?;
    let dir = dir.to_owned();
    std::thread::spawn(move || {
        let Ok(signal) = signals.wait() else { return };
        drop(std::fs::remove_dir_all(dir));
        std::process::exit(128 + signal as i32);
    });
    Ok(())
}
