//! Durations as people write them: `1.5s`, `2m`, `1h30m`, `250ms`.

use std::time::Duration;

use crate::error::{Error, Result};

/// Units in nanoseconds, largest first.
const UNITS: [(&str, u64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Reads one or more numbers with units, each of them smaller than the one before.
///
/// ```
/// use std::time::Duration;
/// assert_eq!(tenure::duration::parse("1.5s")?, Duration::from_millis(1500));
/// assert_eq!(tenure::duration::parse("1h30m")?, Duration::from_secs(5400));
/// assert!(tenure::duration::parse("30").is_err());
/// # Ok::<(), tenure::Error>(())
/// ```
pub fn parse(text: &str) -> Result<Duration> {
    let refuse = |problem: &str| Error::config(format!("the duration {text:?}"), problem, "for example 250ms, 1.5s, 2m, 1h30m");
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(refuse("is empty"));
    }
    let mut nanos = 0_u64;
    let mut last_unit = u64::MAX;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        if number.is_empty() {
            return Err(refuse("has no number where one is due"));
        }
        if unit.is_empty() {
            return Err(refuse("has a number without a unit"));
        }
        let Some(&(_, size)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(refuse("has an unknown unit; known are d, h, m, s, ms, us, ns"));
        };
        if size >= last_unit {
            return Err(refuse("has its units in the wrong order"));
        }
        let part = scaled(number, size).ok_or_else(|| refuse("has a number that cannot be read, or is too large"))?;
        nanos = nanos.checked_add(part).ok_or_else(|| refuse("is too large"))?;
        last_unit = size;
        rest = after.trim_start();
    }
    Ok(Duration::from_nanos(nanos))
}

/// `number * size`, exactly, with up to nine decimals.
fn scaled(number: &str, size: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.len() > 9 {
        return None;
    }
    let whole = u128::from(whole.parse::<u64>().ok()?) * u128::from(size);
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let part = u128::from(fraction.parse::<u64>().ok()?) * u128::from(size) / scale;
    u64::try_from(whole + part).ok()
}

/// Writes a duration with its two largest units, as [`parse`] reads it: `1h30m`, `2m5s`, `1.5s`, `250ms`.
#[must_use]
pub fn show(d: Duration) -> String {
    let nanos = u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
    let Some(i) = UNITS.iter().position(|(_, size)| nanos >= *size) else { return "0s".to_owned() };
    let (unit, size) = UNITS[i];
    let whole = nanos / size;
    // Below a minute one decimal says more than a second unit.
    if size <= UNITS[3].1 {
        let tenth = (nanos % size) * 10 / size;
        return if tenth == 0 { format!("{whole}{unit}") } else { format!("{whole}.{tenth}{unit}") };
    }
    let (next_unit, next_size) = UNITS[i + 1];
    match (nanos % size) / next_size {
        0 => format!("{whole}{unit}"),
        rest => format!("{whole}{unit}{rest}{next_unit}"),
    }
}
