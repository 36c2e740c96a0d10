//! One run of the machine, and its clock: leases are points of it, which all processes compare with their own.

use super::fault::NAME;
use crate::error::{Error, Result};

/// Tells one run of the machine from the next, in which the lease clock starts anew.
pub(super) fn id() -> Result<String> {
    let path = "/proc/sys/kernel/random/boot_id";
    let id = std::fs::read_to_string(path).map_err(|e| {
        Error::config(format!("the store {NAME}:"), format!("cannot read {path}: {e}"), "Linux with /proc mounted")
    })?;
    check_clock(&std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default())?;
    Ok(id.trim().to_owned())
}

/// Refuses a clock that was moved for some processes: what the others wrote would be long over, or never end. Their boot id
/// is the same. Without time namespaces there is nothing to read.
fn check_clock(offsets: &str) -> Result<()> {
    let is_moved = |line: &str| {
        let mut fields = line.split_whitespace();
        // By its name or by its number.
        matches!(fields.next(), Some("boottime" | "7")) && fields.any(|offset| offset.parse() != Ok(0_i64))
    };
    if !offsets.lines().any(is_moved) {
        return Ok(());
    }
    let problem =
        "is in a time namespace whose boot clock is not the machine's: its leases would mean nothing to other processes";
    Err(Error::config(
        format!("the store {NAME}:"),
        problem,
        "a process with the machine's boot clock (/proc/self/timens_offsets)",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_machines_own_boot_clock_is_taken() {
        for fine in [
            "",
            "monotonic           0         0\nboottime            0         0\n",
            "monotonic        1000         5\nboottime            0         0\n",
            "1 5 5\n7 0 0\n",
            "nonsense\n",
        ] {
            assert!(check_clock(fine).is_ok(), "{fine:?}");
        }
        for moved in [
            "monotonic           0         0\nboottime       100000         0\n",
            "monotonic           0         0\nboottime           -1         0\n",
            "boottime 0 1\n",
            "7 100 0\n",
            "boottime 99999999999999999999 0",
            "boottime x 0",
        ] {
            let text = check_clock(moved).unwrap_err().to_string();
            assert!(text.contains("time namespace") && text.contains("allowed: "), "{text}");
        }
    }
}
