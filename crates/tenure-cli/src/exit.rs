//! Exit codes: a contract, listed in `tenure run --help`.

use std::process::ExitCode;

use tenure::{Error, ErrorKind};

/// `break`: the lock was free; also output that cannot be written.
pub(crate) const FAILED: u8 = 1;
/// Wrong usage; clap's own code.
pub(crate) const USAGE: u8 = 2;
/// `EX_UNAVAILABLE`: the store cannot be reached, or refuses.
pub(crate) const UNAVAILABLE: u8 = 69;
/// `EX_TEMPFAIL`: the lock is busy.
pub(crate) const BUSY: u8 = 75;
/// The lock was lost while the program ran.
pub(crate) const LOST: u8 = 76;
/// `EX_NOPERM`: the lock was lost, and a part of the program runs on as a user that tenure may not signal.
pub(crate) const RUNS_ON: u8 = 77;
/// As in a shell: found, but cannot be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// As in a shell.
pub(crate) const NOT_FOUND: u8 = 127;

/// Why a command ends before it has done its work, and with which code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    /// For stderr; empty if there is nothing to say.
    pub(crate) message: String,
    /// What there is to add, each on a line of its own.
    pub(crate) details: Vec<String>,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: Vec::new() }
    }

    /// Ends without a word.
    pub(crate) fn silent(code: u8) -> Self {
        Self::new(code, "")
    }

    /// Prints the message and gives the code.
    pub(crate) fn report(&self) -> ExitCode {
        if !self.message.is_empty() {
            crate::output::say(&self.message);
            self.details.iter().for_each(|detail| crate::output::add(detail));
        }
        ExitCode::from(self.code)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match error.kind() {
            ErrorKind::Config | ErrorKind::Misuse | ErrorKind::Unsupported => USAGE,
            ErrorKind::Lost => LOST,
            _ => UNAVAILABLE,
        };
        match error {
            // There are too many nodes for one line.
            Error::TooFewNodes(few) => {
                let details = few.nodes.iter().map(ToString::to_string).collect();
                Self { details, ..Self::new(code, format!("{}:", few.headline())) }
            }
            error => Self::new(code, error.to_string()),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            // The reader has seen enough, as `head` has.
            std::io::ErrorKind::BrokenPipe => Self::silent(FAILED),
            _ => Self::new(FAILED, format!("cannot write: {error}")),
        }
    }
}

/// The code of a program that died of a signal, as shells have it.
pub(crate) fn of_signal(number: i32) -> u8 {
    u8::try_from(128 + number).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure::Fault;

    #[test]
    fn every_kind_of_error_has_its_code() {
        let config = tenure::duration::parse("30").map(|_| ()).map_err(Failure::from);
        assert_eq!(config.map_err(|f| f.code), Err(USAGE));
        assert_eq!(Failure::from(Error::unavailable("redis", "x", Fault::Timeout, "y")).code, UNAVAILABLE);
        assert_eq!(Failure::from(Error::backend("redis", "x", Fault::Auth, "y")).code, UNAVAILABLE);
        assert_eq!(Failure::from(Error::Closed).code, UNAVAILABLE);
        assert_eq!(of_signal(15), 143);
    }

    #[test]
    fn what_nodes_say_has_a_line_for_each() -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let nobody = ["quorum:redis://127.0.0.1:1", "redis://127.0.0.1:2", "memory:"].join("|");
        let Err(error) = runtime.block_on(tenure::Locker::connect(&nobody)) else { panic!("nobody is there") };
        let (whole, failure) = (error.to_string(), Failure::from(error));
        assert_eq!(failure.code, UNAVAILABLE);
        assert!(failure.message.ends_with("2 of 3 nodes have to agree, and too few count:"), "{}", failure.message);
        assert!(failure.details[0].starts_with("redis://127.0.0.1:1: redis is unavailable"), "{failure:?}");
        assert_eq!((&*failure.details[2], failure.details.len()), ("memory: 3: has answered", 3));
        assert_eq!(format!("{} {}", failure.message, failure.details.join("; ")), whole);
        assert_eq!(Failure::from(Error::unavailable("redis", "x", Fault::Timeout, "a; redis://b")).details, [""; 0]);
        Ok(())
    }
}
