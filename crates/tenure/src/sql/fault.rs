//! What the codes of servers mean, whichever driver has received them.

use super::{Dialect, Operation};
use crate::error::{Error, Fault};

/// The meaning of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The table or a column of it is missing.
    WrongTable,
    /// To ask again may help.
    Transient(Fault),
    /// To ask again does not help.
    Permanent(Fault),
}

use Meaning::{Permanent, Transient, WrongTable};

impl Meaning {
    pub(crate) fn error(self, dialect: Dialect, operation: Operation<'_>, detail: impl Into<String>) -> Error {
        match self {
            WrongTable => operation.wrong_table(dialect, &detail.into()),
            Transient(fault) => Error::unavailable(dialect.name(), operation.what, fault, detail),
            Permanent(fault) => Error::backend(dialect.name(), operation.what, fault, detail),
        }
    }
}

/// A SQLSTATE of PostgreSQL.
#[cfg(any(feature = "postgres", feature = "sqlx"))]
pub(crate) fn postgres(state: &str) -> Meaning {
    match state {
        "42P01" | "42703" | "42P10" => WrongTable,
        "57P03" => Transient(Fault::Loading),
        // A standby, which may be promoted any moment.
        "25006" => Transient(Fault::ReadOnly),
        "42501" => Permanent(Fault::Denied),
        "57014" => Transient(Fault::Timeout),
        "55P03" => Transient(Fault::StoreBusy),
        "53100" => Transient(Fault::Disk),
        "53200" => Transient(Fault::OutOfMemory),
        "XX001" | "XX002" => Permanent(Fault::Corrupt),
        _ => match state.get(..2) {
            Some("28") => Permanent(Fault::Auth),
            Some("40") => Transient(Fault::StoreBusy),
            Some("08" | "53" | "57") => Transient(Fault::Connection),
            _ => Permanent(Fault::Protocol),
        },
    }
}

/// An error number of MySQL or MariaDB.
#[cfg(any(feature = "mysql", feature = "sqlx"))]
pub(crate) fn mysql(number: u16) -> Meaning {
    match number {
        // No such table, column, database.
        1146 | 1054 | 1049 => WrongTable,
        // Lock wait timeout, deadlock, record changed since the snapshot.
        1205 | 1213 | 1020 => Transient(Fault::StoreBusy),
        // Too many connections, shutdown, connection killed.
        1040 | 1203 | 1226 | 1053 | 1077 | 1079 | 1317 | 1927 | 3169 => Transient(Fault::Connection),
        1969 | 3024 => Transient(Fault::Timeout),
        // A replica, which may be promoted any moment.
        1290 | 1792 | 1836 => Transient(Fault::ReadOnly),
        1045 | 1698 | 1862 | 3118 => Permanent(Fault::Auth),
        1044 | 1142 | 1143 | 1227 => Permanent(Fault::Denied),
        1021 | 1114 => Transient(Fault::Disk),
        1037 | 1038 | 1041 => Transient(Fault::OutOfMemory),
        1034 | 1035 | 1194 | 1195 => Permanent(Fault::Corrupt),
        _ => Permanent(Fault::Protocol),
    }
}

/// A result code of SQLite, with its extension or without.
#[cfg(feature = "sqlx")]
pub(crate) fn sqlite(code: u32, detail: &str) -> Meaning {
    match code & 0xff {
        1 if detail.contains("no such table") || detail.contains("no such column") => WrongTable,
        5 | 6 | 15 => Transient(Fault::StoreBusy),
        9 => Transient(Fault::Timeout),
        7 => Transient(Fault::OutOfMemory),
        10 | 13 => Transient(Fault::Disk),
        14 => Transient(Fault::Connection),
        8 => Permanent(Fault::ReadOnly),
        3 | 23 => Permanent(Fault::Denied),
        11 | 26 => Permanent(Fault::Corrupt),
        _ => Permanent(Fault::Protocol),
    }
}
