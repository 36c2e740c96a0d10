//! How much a server may send at once.
//!
//! redis-rs keeps a reply until it is whole, however large that is. So a broken or hostile server could fill the memory of this process
//! with an endless reply. Here input is counted before it is read: where replies begin and end, what they announce.

use std::fmt;

/// What one reply may have in bytes. The largest of ours tells of ten thousand holders.
const REPLY_BYTES: u64 = 16 << 20;
/// What one push may have in bytes: the name of a key, or a message of a few bytes.
const PUSH_BYTES: u64 = 1 << 20;
/// What a line may have in bytes: a number, a status, an error.
const LINE_BYTES: u64 = 64 << 10;
/// How many values a reply may have. Each takes more room in memory than the few bytes that announce it.
const VALUES: u64 = 1 << 20;
/// How deep lists may be in lists. Ours are four deep.
const DEPTH: usize = 16;

/// Why a connection was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Breach(&'static str);

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server sends more than a reply may have: {}", self.0)
    }
}

impl std::error::Error for Breach {}

/// Follows the frames of RESP3, as far as that is needed to know where a reply ends.
#[derive(Debug, Default)]
pub(super) struct Frames {
    at: At,
    /// Of the reply so far: its bytes, and how many values it has or announces.
    bytes: u64,
    values: u64,
    is_push: bool,
    /// How many values are still to come, per open list.
    open: Vec<u64>,
}

/// Where in a frame the next byte is.
#[derive(Debug, Default, Clone, Copy)]
enum At {
    #[default]
    Type,
    /// In the line behind a type that has no count.
    Text { length: u64, was_cr: bool },
    /// In the line that has the count of a type.
    Count { of: u8, length: u64, count: u64, is_negative: bool, was_cr: bool },
    /// In a text with its end: so many bytes are to come.
    Body(u64),
}

impl Frames {
    /// Takes note of what has come in.
    pub(super) fn pass(&mut self, mut bytes: &[u8]) -> Result<(), Breach> {
        while let [first, rest @ ..] = bytes {
            bytes = match self.at {
                At::Type => {
                    self.begin(*first)?;
                    rest
                }
                At::Text { length, was_cr } => self.text(bytes, length, was_cr)?,
                At::Count { of, length, count, is_negative, was_cr } => {
                    self.spend(1)?;
                    self.at = match (first, was_cr) {
                        (b'\n', true) => self.counted(of, count, is_negative)?,
                        (b'\r', false) if length > 0 => At::Count { of, length, count, is_negative, was_cr: true },
                        (b'-', false) if length == 0 && !is_negative => {
                            At::Count { of, length, count, is_negative: true, was_cr }
                        }
                        // As many digits as fit: a count that long is refused anyway.
                        (digit @ b'0'..=b'9', false) if length < 19 => {
                            let count = count * 10 + u64::from(digit - b'0');
                            At::Count { of, length: length + 1, count, is_negative, was_cr }
                        }
                        _ => return Err(Breach("a count that is no number")),
                    };
                    rest
                }
                At::Body(left) => {
                    let here = left.min(bytes.len() as u64);
                    if here == left {
                        self.end_of_value();
                    } else {
                        self.at = At::Body(left - here);
                    }
                    &bytes[usize::try_from(here).unwrap_or(bytes.len())..]
                }
            };
        }
        Ok(())
    }

    /// Whether the last reply is whole, and none has begun.
    #[cfg(any(test, fuzzing))]
    pub(super) fn is_between(&self) -> bool {
        matches!(self.at, At::Type) && self.open.is_empty()
    }

    fn begin(&mut self, of: u8) -> Result<(), Breach> {
        if self.open.is_empty() {
            (self.bytes, self.values, self.is_push) = (0, 1, of == b'>');
        }
        self.spend(1)?;
        self.at = match of {
            b'$' | b'!' | b'=' | b'*' | b'~' | b'%' | b'|' | b'>' => {
                At::Count { of, length: 0, count: 0, is_negative: false, was_cr: false }
            }
            b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => At::Text { length: 0, was_cr: false },
            _ => return Err(Breach("a type that there is not")),
        };
        Ok(())
    }

    /// Reads on in a line, and returns what comes behind that. It ends where redis-rs takes it to end.
    fn text<'a>(&mut self, bytes: &'a [u8], length: u64, was_cr: bool) -> Result<&'a [u8], Breach> {
        let ends_here = if was_cr && bytes[0] == b'\n' { Some(1) } else { None };
        let end = ends_here.or_else(|| bytes.windows(2).position(|two| two == b"\r\n").map(|at| at + 2));
        let here = end.unwrap_or(bytes.len());
        self.spend(here as u64)?;
        let length = length + here as u64;
        if length > LINE_BYTES {
            return Err(Breach("a line that is too long"));
        }
        match end {
            Some(_) => self.end_of_value(),
            None => self.at = At::Text { length, was_cr: bytes.ends_with(b"\r") },
        }
        Ok(&bytes[here..])
    }

    /// What follows a count.
    fn counted(&mut self, of: u8, count: u64, is_negative: bool) -> Result<At, Breach> {
        let nothing = is_negative && count > 0;
        let (is_text, may_be_nothing) = (matches!(of, b'$' | b'!' | b'='), matches!(of, b'$' | b'*' | b'~' | b'>'));
        if nothing && !may_be_nothing {
            return Err(Breach("a count below zero"));
        }
        if is_text && !nothing {
            let body = count.saturating_add(2);
            self.spend(body)?;
            return Ok(At::Body(body));
        }
        let values = match of {
            _ if nothing => 0,
            b'%' => count.saturating_mul(2),
            // What it is an attribute of comes behind it.
            b'|' => count.saturating_mul(2).saturating_add(1),
            _ => count,
        };
        if values == 0 {
            self.end_of_value();
            return Ok(At::Type);
        }
        self.values = self.values.saturating_add(values);
        if self.values > VALUES {
            return Err(Breach("too many values"));
        }
        if self.open.len() == DEPTH {
            return Err(Breach("lists in lists, too deep"));
        }
        self.open.push(values);
        Ok(At::Type)
    }

    fn spend(&mut self, bytes: u64) -> Result<(), Breach> {
        self.bytes = self.bytes.saturating_add(bytes);
        let most = if self.is_push { PUSH_BYTES } else { REPLY_BYTES };
        if self.bytes > most { Err(Breach("too many bytes")) } else { Ok(()) }
    }

    fn end_of_value(&mut self) {
        self.at = At::Type;
        while let Some(left) = self.open.last_mut() {
            *left -= 1;
            if *left > 0 {
                return;
            }
            self.open.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A reply of all types, as a server writes it.
    fn reply() -> impl Strategy<Value = Vec<u8>> {
        let text = |sign: &'static str| {
            prop::collection::vec(any::<u8>(), 0..40)
                .prop_map(move |body| [format!("{sign}{}\r\n", body.len()).as_bytes(), &body, b"\r\n"].concat())
        };
        let line = "[+:,#(-][ -~]{0,20}".prop_map(|line| format!("{line}\r\n").into_bytes());
        let none =
            prop::sample::select(vec![&b"_\r\n"[..], b"$-1\r\n", b"*-1\r\n", b"*0\r\n", b"%0\r\n"]).prop_map(<[u8]>::to_vec);
        let leaf = prop_oneof![text("$"), text("="), text("!"), line, none];
        leaf.prop_recursive(5, 40, 6, |inner| {
            let list = |sign: char, each: usize, more: usize| {
                move |values: Vec<Vec<u8>>| {
                    let whole = values.len().saturating_sub(more) / each;
                    let values = &values[..(whole * each + more).min(values.len())];
                    [format!("{sign}{whole}\r\n").as_bytes(), &values.concat()].concat()
                }
            };
            let values = |n| prop::collection::vec(inner.clone(), n);
            prop_oneof![
                values(0..6).prop_map(list('*', 1, 0)),
                values(0..6).prop_map(list('~', 1, 0)),
                values(1..6).prop_map(list('>', 1, 0)),
                values(0..6).prop_map(list('%', 2, 0)),
                values(1..6).prop_map(list('|', 2, 1)),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_end_of_every_reply_is_known_however_it_is_cut(
            replies in prop::collection::vec(reply(), 1..4),
            cuts in prop::collection::vec(1..64_usize, 1..64),
        ) {
            let (mut frames, mut cuts) = (Frames::default(), cuts.iter().cycle());
            for reply in &replies {
                let mut left = &reply[..];
                while !left.is_empty() {
                    prop_assert!(matches!(frames.at, At::Type) == (frames.open.is_empty() && left.len() == reply.len())
                        || !frames.open.is_empty() || !matches!(frames.at, At::Type));
                    let (here, rest) = left.split_at(left.len().min(*cuts.next().expect("endless")));
                    frames.pass(here).expect("small");
                    left = rest;
                }
                prop_assert!(matches!(frames.at, At::Type) && frames.open.is_empty(), "{:?}", String::from_utf8_lossy(reply));
            }
        }

        #[test]
        fn nothing_that_a_server_sends_panics_or_is_kept(noise in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut frames = Frames::default();
            let _whatever = frames.pass(&noise);
            prop_assert!(frames.open.len() <= DEPTH && frames.values <= VALUES.saturating_mul(2).saturating_add(2));
        }

        #[test]
        fn what_redis_rs_reads_whole_is_whole_here(noise in "[*$%~>|+:=!_-]?[0-9a\r\n+$*:-]{0,24}") {
            // Where the two disagree on the end of a reply, a server could hide one that never ends.
            let mut frames = Frames::default();
            if let (Ok(()), Ok(_)) = (frames.pass(noise.as_bytes()), redis::parse_redis_value(noise.as_bytes())) {
                let mut first = Frames::default();
                let ends = (1..=noise.len()).find(|end| {
                    first.pass(&noise.as_bytes()[end - 1..*end]).is_ok() && matches!(first.at, At::Type) && first.open.is_empty()
                });
                prop_assert!(ends.is_some(), "{noise:?}");
                prop_assert!(redis::parse_redis_value(&noise.as_bytes()[..ends.unwrap_or(0)]).is_ok(), "{noise:?}");
            }
        }
    }

    #[test]
    fn limits_are_to_the_byte() {
        let text = |length: u64| format!("${length}\r\n");
        let fits = REPLY_BYTES - 2 - text(REPLY_BYTES).len() as u64;
        assert_eq!(Frames::default().pass(text(fits).as_bytes()), Ok(()));
        assert_eq!(Frames::default().pass(text(fits + 1).as_bytes()), Err(Breach("too many bytes")));
        assert_eq!(Frames::default().pass(format!("*{}\r\n", VALUES - 1).as_bytes()), Ok(()));
        assert_eq!(Frames::default().pass(format!("*{VALUES}\r\n").as_bytes()), Err(Breach("too many values")));
        assert_eq!(Frames::default().pass("*1\r\n".repeat(DEPTH).as_bytes()), Ok(()));
        assert_eq!(Frames::default().pass("*1\r\n".repeat(DEPTH + 1).as_bytes()), Err(Breach("lists in lists, too deep")));
        assert_eq!(Frames::default().pass(b"$99999999999999999999999999"), Err(Breach("a count that is no number")));
        for odd in ["$+5\r\n", "$ 5\r\n", "$\r\n", "$5\n", "*?\r\n", "=-1\r\n", "%-1\r\n", "@", "$--1\r\n"] {
            Frames::default().pass(odd.as_bytes()).expect_err(odd);
        }
    }
}
