//! The names of keys and channels. All keys of a lock share one slot, by Redisson's rule for hash tags.

use crate::name::{ClientId, Resource};

/// How a lock is written into Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Redisson's RLock and the token of its RFencedLock.
    Redisson,
    /// `SET key owner NX PX lease`, as redis-py, redsync and node-redlock do.
    Plain,
}

impl Layout {
    /// Where the last token is kept.
    pub(crate) fn token(self, name: &Resource) -> String {
        prefixed(self.token_prefix(), name)
    }

    /// What stands before the name in [`token`](Self::token).
    pub(crate) fn token_prefix(self) -> &'static str {
        match self {
            Self::Redisson => "redisson_lock_token",
            Self::Plain => "tenure_lock_token",
        }
    }

    /// Where releases are told.
    pub(crate) fn channel(self, name: &Resource) -> String {
        prefixed(self.channel_prefix(), name)
    }

    fn channel_prefix(self) -> &'static str {
        match self {
            Self::Redisson => "redisson_lock__channel",
            Self::Plain => "tenure_lock__channel",
        }
    }

    /// The names that a channel may belong to: by Redisson's rule `a` and `{a}` share one.
    pub(crate) fn names_of_channel(self, channel: &str) -> Option<[&str; 2]> {
        let braced = channel.strip_prefix(self.channel_prefix())?.strip_prefix(':')?;
        Some([unprefixed(self.channel_prefix(), channel)?, braced])
    }
}

/// Where the holder's note is kept, if it gave one.
pub(crate) fn note(name: &Resource) -> String {
    prefixed("tenure_lock_note", name)
}

/// Where a client says who it is.
pub(crate) fn client(id: ClientId) -> String {
    format!("tenure_client:{id}")
}

/// Redisson's rule: a name with a brace is taken to bring its own hash tag.
fn prefixed(prefix: &str, name: &Resource) -> String {
    if name.as_str().contains('{') { format!("{prefix}:{name}") } else { format!("{prefix}:{{{name}}}") }
}

/// Undoes [`prefixed`].
pub(crate) fn unprefixed<'a>(prefix: &str, key: &'a str) -> Option<&'a str> {
    let rest = key.strip_prefix(prefix)?.strip_prefix(':')?;
    match rest.strip_prefix('{').and_then(|r| r.strip_suffix('}')) {
        Some(bare) if !bare.contains('{') => Some(bare),
        _ => Some(rest),
    }
}

/// A pattern for SCAN that matches keys that start so, literally.
pub(crate) fn glob(start: &str) -> String {
    let mut pattern = String::with_capacity(start.len() + 1);
    for c in start.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^' | '-') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push('*');
    pattern
}
