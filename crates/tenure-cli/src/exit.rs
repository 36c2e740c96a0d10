//! Exit codes: a contract, listed in `tenure run --help`.

use std::process::ExitCode;

use tenure::Error;

/// `break`: nobody held the lock; also output that cannot be written.
pub(crate) const FAILED: u8 = 1;
/// Wrong usage; clap's own code.
pub(crate) const USAGE: u8 = 2;
/// `EX_UNAVAILABLE`: the store cannot be reached, or refuses.
pub(crate) const UNAVAILABLE: u8 = 69;
/// `EX_TEMPFAIL`: somebody else has the lock.
pub(crate) const BUSY: u8 = 75;
/// The lock was lost while the program ran.
pub(crate) const LOST: u8 = 76;
/// `EX_NOPERM`: the lock was lost, and a part of the program runs on as a user whom tenure may not stop.
pub(crate) const RUNS_ON: u8 = 77;
/// As in a shell: found, but cannot be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// As in a shell.
pub(crate) const NOT_FOUND: u8 = 127;

/// What stands before the words of the nodes in an error of a quorum.
const QUORUM_SAID: &str = "too few count: ";

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
        let code = match &error {
            Error::Config { .. } | Error::Unsupported { .. } => USAGE,
            Error::Lost(_) => LOST,
            _ => UNAVAILABLE,
        };
        let message = error.to_string();
        let (message, details) = by_node(&message).unwrap_or((&message, Vec::new()));
        Self { details: details.into_iter().map(str::to_owned).collect(), ..Self::new(code, message) }
    }
}

/// Takes what the nodes of a quorum have said out of an error: there are too many of them for one line.
fn by_node(message: &str) -> Option<(&str, Vec<&str>)> {
    let starts =
        |text: &str| tenure::connect::schemes().any(|scheme| text.strip_prefix(scheme).is_some_and(|t| t.starts_with(':')));
    let (head, mut rest) = message.split_once(QUORUM_SAID).filter(|(_, rest)| starts(rest))?;
    let mut nodes = Vec::new();
    // A node's own words may have a semicolon in them.
    while let Some((end, _)) = rest.match_indices("; ").find(|(at, _)| starts(&rest[at + 2..])) {
        nodes.push(&rest[..end]);
        rest = &rest[end + 2..];
    }
    nodes.push(rest);
    Some((&message[..head.len() + QUORUM_SAID.trim_end().len()], nodes))
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
    fn what_nodes_say_has_a_line_for_each() {
        let detail = "2 of 3 nodes have to agree, and too few count: redis://a:1: refused; try later; redis://b: has answered";
        let failure = Failure::from(Error::unavailable("quorum", "x", Fault::Timeout, detail));
        assert!(failure.message.ends_with("agree, and too few count:"), "{}", failure.message);
        assert_eq!(failure.details, ["redis://a:1: refused; try later", "redis://b: has answered"]);
        assert_eq!(Failure::from(Error::unavailable("redis", "x", Fault::Timeout, "a; redis://b")).details, [""; 0]);
    }
}
