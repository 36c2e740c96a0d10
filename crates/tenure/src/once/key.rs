//! [`Key`]: what is to be done once.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::name::Resource;

/// Stands before a key in the name of its lock.
const LOCK: &str = "once:";

/// The validated name of work: 1 to 507 bytes of UTF-8, so that its lock `once:{key}` has a name too.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<str>);

impl Key {
    /// The longest key in bytes.
    pub const MAX_BYTES: usize = Resource::MAX_BYTES - LOCK.len();

    /// Checks a key.
    pub fn new(key: impl AsRef<str>) -> Result<Self> {
        let key = key.as_ref();
        let (head, n) = (key.chars().take(32).collect::<String>(), key.len());
        let refuse = |problem: String| Err(Error::config(format!("the key {head:?}"), problem, "1 to 507 bytes of UTF-8"));
        match n {
            0 => refuse("is empty".to_owned()),
            1..=Self::MAX_BYTES => Ok(Self(key.into())),
            _ => refuse(format!("and more is {n} bytes long")),
        }
    }

    /// The key as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of the lock under which it is done, as `tenure who` shows it.
    #[must_use]
    pub fn lock(&self) -> String {
        format!("{LOCK}{self}")
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}
