//! Secrets in files: passwords, and URLs with a password in them. A file keeps them out of the command line and
//! of the environment, which other users and programs may read.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::{Error, Result};

/// What stands for a secret in what is fed to readers: wherever it is one, nothing may show it.
#[cfg(any(test, fuzzing))]
#[allow(dead_code, reason = "not every store is fuzzed in every build")]
pub(crate) const CANARY: &str = "hunter2";

/// Nobody has a longer password.
const MOST_BYTES: u64 = 65_536;

/// A secret: of a file, or of a URL. Its `Debug` does not show it.
#[derive(Clone)]
pub struct Secret {
    text: String,
    exposed: bool,
}

impl Secret {
    /// One that stood in no file.
    pub(crate) fn given(text: String) -> Self {
        Self { text, exposed: false }
    }

    /// The secret itself.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The secret itself.
    #[must_use]
    pub fn into_text(self) -> String {
        self.text
    }

    /// Whether the file is this user's own and every other user may read it, which deserves a warning.
    #[must_use]
    pub fn is_exposed(&self) -> bool {
        self.exposed
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("exposed", &self.exposed).finish_non_exhaustive()
    }
}

/// Reads a secret from a file: all of it but one line end. A file that its group or others may write to is refused, because
/// they could name another server. A file that its group may read is accepted: many services need that.
pub fn read(path: &Path) -> Result<Secret> {
    let what = format!("the file {}", path.display());
    let failed = |e: std::io::Error| refuse(&what, format!("cannot be read: {e}"));
    let mut file = File::open(path).map_err(failed)?;
    let exposed = check(&file.metadata().map_err(failed)?, &what)?;
    let mut bytes = Vec::new();
    (&mut file).take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(refuse(&what, format!("is longer than {MOST_BYTES} bytes")));
    }
    let mut text = String::from_utf8(bytes).map_err(|_| refuse(&what, "is not UTF-8"))?;
    if text.ends_with('\n') {
        text.pop();
        text.truncate(text.strip_suffix('\r').map_or(text.len(), str::len));
    }
    if text.is_empty() {
        return Err(refuse(&what, "is empty"));
    }
    Ok(Secret { text, exposed })
}

/// Says whether all users may read the file, and refuses one that others may write to.
#[cfg(unix)]
fn check(meta: &std::fs::Metadata, what: &str) -> Result<bool> {
    use std::os::unix::fs::MetadataExt;
    // Pipes have an end that nobody else has.
    if !meta.is_file() {
        return Ok(false);
    }
    if meta.mode() & 0o022 != 0 {
        return Err(refuse(what, "may be written to by others"));
    }
    // What an orchestrator has put there is as it wants it.
    Ok(meta.mode() & 0o004 != 0 && meta.uid() == rustix::process::geteuid().as_raw())
}

#[cfg(not(unix))]
fn check(_meta: &std::fs::Metadata, _what: &str) -> Result<bool> {
    Ok(false)
}

fn refuse(what: &str, problem: impl Into<String>) -> Error {
    Error::config(what, problem, "a secret of one user, with mode 0600 or 0640")
}
