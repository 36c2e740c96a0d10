//! The name of a lock, its owner and its token: [`Resource`], [`OwnerId`] and [`Token`].

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::invalid::Invalid;

/// What comes of reading a name, an owner or a token.
type Result<T> = std::result::Result<T, Invalid>;

/// The validated name of what is locked: 1 to 512 bytes of UTF-8.
///
/// Cheap to clone. Control characters are allowed (stores carry them unharmed) and are escaped by [`fmt::Debug`].
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resource(Arc<str>);

impl Resource {
    /// The longest name in bytes.
    pub const MAX_BYTES: usize = 512;

    /// Checks a name.
    pub fn new(name: impl AsRef<str>) -> Result<Self> {
        let name = name.as_ref();
        match name.len() {
            0 => Err(Invalid::new("the lock name \"\"", "is empty", "1 to 512 bytes of UTF-8")),
            1..=Self::MAX_BYTES => Ok(Self(name.into())),
            n => {
                let head: String = name.chars().take(32).collect();
                Err(Invalid::new(format!("the lock name {head:?}…"), format!("is {n} bytes long"), "1 to 512 bytes of UTF-8"))
            }
        }
    }

    /// The name as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Resource {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// The identity of one client: random bits from the operating system, written as a UUID of version 8.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(u128);

impl ClientId {
    /// A new identity. Fails only where the operating system has no random source.
    pub fn random() -> Result<Self> {
        let mut bytes = [0_u8; 16];
        getrandom::fill(&mut bytes)
            .map_err(|e| Invalid::new("a client identity", format!("the random source failed: {e}"), "a working getrandom(2)"))?;
        let raw = u128::from_be_bytes(bytes);
        // Version 8, variant 1. Java's are of version 4, so that a store can tell clients of ours from those of Redisson.
        Ok(Self((raw & !(0xf << 76) & !(0x3 << 62)) | (0x8 << 76) | (0x2 << 62)))
    }
}

impl ClientId {
    /// The random bits.
    #[cfg(feature = "redis")]
    pub(crate) fn bits(self) -> u128 {
        self.0
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // By hand: it is written with every question, and the machinery for 128 bits is slow.
        let (mut text, mut at) = ([b'-'; 36], 0);
        for (i, byte) in self.0.to_be_bytes().into_iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                at += 1;
            }
            for digit in [byte >> 4, byte & 0xf] {
                text[at] = b"0123456789abcdef"[usize::from(digit)];
                at += 1;
            }
        }
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ClientId {
    type Err = Invalid;

    fn from_str(s: &str) -> Result<Self> {
        let refuse = || Invalid::new(format!("the client id {s:?}"), "is not a UUID", "8-4-4-4-12 lower-case hex digits");
        let shape = [8, 4, 4, 4, 12];
        let parts: Vec<&str> = s.split('-').collect();
        let hex = |p: &str| p.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if parts.len() != 5 || parts.iter().zip(shape).any(|(p, n)| p.len() != n || !hex(p)) {
            return Err(refuse());
        }
        u128::from_str_radix(&parts.concat(), 16).map(Self).map_err(|_| refuse())
    }
}

/// Who holds or wants a lock: a client and a number that is unique per hold, written `uuid:n` as Redisson does.
///
/// A new hold is a new owner id, which is what makes every verb of a backend idempotent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerId {
    /// The client that the hold belongs to.
    pub client: ClientId,
    /// The number of the hold within the client.
    pub number: u64,
}

/// Set in the number of an owner whose hold may linger. Above it are the attempts of a quorum.
const LINGERS: u64 = 1 << 39;

impl OwnerId {
    /// Whether its hold may stay with its process for a while after a release. Then the holder is to be told that another client waits: see
    /// [`Losses::wanted`](crate::backend::Losses::wanted).
    #[must_use]
    pub fn lingers(self) -> bool {
        self.number & LINGERS != 0
    }
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.client, self.number)
    }
}

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for OwnerId {
    type Err = Invalid;

    fn from_str(s: &str) -> Result<Self> {
        let refuse = || {
            Invalid::new(
                format!("the owner {s:?}"),
                "is not of the form uuid:number",
                "for example 1b4e28ba-2fa1-4d2a-883f-0016d3cca427:1",
            )
        };
        let (client, number) = s.rsplit_once(':').ok_or_else(refuse)?;
        // Java thread ids are signed 64 bit and positive: the same range here.
        let number = number.parse::<u64>().ok().filter(|n| i64::try_from(*n).is_ok() && number == n.to_string());
        Ok(Self { client: client.parse().map_err(|_| refuse())?, number: number.ok_or_else(refuse)? })
    }
}

/// Hands out owner ids of one client.
#[derive(Debug)]
pub struct OwnerIds {
    client: ClientId,
    next: AtomicU64,
}

impl OwnerIds {
    /// Numbers start at 1.
    #[must_use]
    pub fn new(client: ClientId) -> Self {
        Self { client, next: AtomicU64::new(1) }
    }

    /// An id that this client has not used before.
    pub fn next(&self) -> OwnerId {
        OwnerId { client: self.client, number: self.next.fetch_add(1, Ordering::Relaxed) }
    }

    /// One whose hold may linger.
    pub(crate) fn next_lingering(&self) -> OwnerId {
        let owner = self.next();
        OwnerId { number: owner.number | LINGERS, ..owner }
    }

    /// The client.
    #[must_use]
    pub fn client(&self) -> ClientId {
        self.client
    }
}

/// The fencing token: a number that grows with every grant of a name and never goes back.
///
/// Hand it to the storage with each write; a storage that keeps the largest one seen and refuses smaller ones
/// stops a holder that does not know yet that it lost the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(u64);

impl Token {
    /// Wraps a number that a store handed out.
    #[must_use]
    pub const fn new(n: u64) -> Self {
        Self(n)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The token `n` further on, if the range is not used up. Stores refuse tokens above `i64::MAX`.
    #[must_use]
    pub fn plus(self, n: u64) -> Option<Self> {
        self.0.checked_add(n).filter(|n| i64::try_from(*n).is_ok()).map(Self)
    }

    /// [`after`](Self::after) by this machine's own clock, for stores that have none.
    #[must_use]
    pub fn after_now(last: Option<Self>) -> Option<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::after(last, u64::try_from(now.as_micros()).unwrap_or(u64::MAX))
    }

    /// The rule of all stores: larger than the last one, and at least as large as was asked for, or else not behind this
    /// machine's own clock.
    #[must_use]
    pub fn next(last: Option<Self>, at_least: Option<Self>) -> Option<Self> {
        match at_least {
            Some(least) => Self::after(last, least.0),
            None => Self::after_now(last),
        }
    }

    /// The token of a hold that goes on: raised to what is asked for, never lowered.
    #[must_use]
    pub fn raised(self, at_least: Option<Self>) -> Self {
        at_least.map_or(self, |least| least.max(self))
    }

    /// The hybrid rule: larger than the last one, and not behind the store's clock (microseconds since 1970),
    /// so that a store that lost its counter still hands out larger tokens.
    #[must_use]
    pub fn after(last: Option<Self>, now_micros: u64) -> Option<Self> {
        match last {
            Some(last) if last.0 >= now_micros => last.plus(1),
            _ => Self(0).plus(now_micros),
        }
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for Token {
    type Err = Invalid;

    fn from_str(s: &str) -> Result<Self> {
        let n = s.parse::<i64>().ok().and_then(|n| u64::try_from(n).ok());
        n.map(Self).ok_or_else(|| Invalid::new(format!("the token {s:?}"), "is not a number", "0 to 9223372036854775807"))
    }
}
