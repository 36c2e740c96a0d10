//! How long to wait, read while the program is compiled.

use syn::{Error, LitStr, Result};

/// The longest wait for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    Forever,
    /// In nanoseconds. Zero asks once.
    For(u64),
}

const UNITS: [(&str, u64); 5] =
    [("ms", 1_000_000), ("s", 1_000_000_000), ("m", 60_000_000_000), ("h", 3_600_000_000_000), ("d", 86_400_000_000_000)];

impl Wait {
    pub(crate) fn read(text: &LitStr) -> Result<Self> {
        Self::parse(&text.value()).ok_or_else(|| {
            let value = text.value();
            Error::new(
                text.span(),
                format!("the wait {value:?} cannot be read; allowed: \"forever\", or a whole number of ms, s, m, h or d"),
            )
        })
    }

    fn parse(text: &str) -> Option<Self> {
        if text == "forever" {
            return Some(Self::Forever);
        }
        let digits = text.find(|c: char| !c.is_ascii_digit())?;
        let (number, unit) = text.split_at(digits);
        let (_, size) = UNITS.iter().find(|(name, _)| *name == unit)?;
        Some(Self::For(number.parse::<u64>().ok()?.checked_mul(*size)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_read_as_they_are_written() {
        for (text, wait) in [
            ("forever", Some(Wait::Forever)),
            ("0s", Some(Wait::For(0))),
            ("250ms", Some(Wait::For(250_000_000))),
            ("5s", Some(Wait::For(5_000_000_000))),
            ("2m", Some(Wait::For(120_000_000_000))),
            ("", None),
            ("5", None),
            ("s", None),
            ("-5s", None),
            ("5 s", None),
            ("1h30m", None),
            ("99999999999d", None),
        ] {
            assert_eq!(Wait::parse(text), wait, "{text:?}");
        }
    }
}
