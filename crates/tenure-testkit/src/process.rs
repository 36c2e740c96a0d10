//! Signals for processes of a test.

pub use tenure_lab::process::Signal;

/// Sends a signal. A process that has ended already gets none.
pub fn signal(pid: u32, signal: Signal) {
    let _already_gone = tenure_lab::process::signal(pid, signal);
}

/// Stops a process, and waits until all of its threads have stopped.
pub fn stop(pid: u32) {
    tenure_lab::process::stop(pid).expect("stopped");
}
