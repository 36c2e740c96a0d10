//! The password of all servers of a lab: other users of the machine, and pages in a browser, must not use them.
//!
//! Servers read it from a file that only its owner can, actors from their standard input: it is in no list of processes.

use std::sync::OnceLock;

use tenure::ClientId;

use crate::error::Result;

static PASSWORD: OnceLock<String> = OnceLock::new();

/// Makes one up, unless it is known.
pub(crate) fn made_up() -> Result<&'static str> {
    // As random as an identity is.
    let new = ClientId::random().map_err(tenure::Error::from)?.to_string();
    Ok(PASSWORD.get_or_init(|| new))
}

/// Hears the lab's.
pub(crate) fn told(password: &str) {
    let _known_already = PASSWORD.set(password.to_owned());
}

/// A server's URL, with options such as `lease=1s`.
pub(crate) fn url(port: u16, options: &str) -> String {
    let password = PASSWORD.get().map_or("", String::as_str);
    let mark = if options.is_empty() { "" } else { "?" };
    format!("redis://:{password}@127.0.0.1:{port}{mark}{options}")
}
