//! What the errors of SQLite and of the file system mean.

use std::path::Path;
use std::sync::Arc;

use rusqlite::ErrorCode;

use crate::error::{Error, Fault};

pub(super) const NAME: &str = "sqlite";

pub(super) fn shown(path: &Path) -> String {
    format!("the file {}", path.display())
}

pub(super) fn is_busy(e: &rusqlite::Error) -> bool {
    use ErrorCode::{DatabaseBusy, DatabaseLocked, FileLockingProtocolFailed};
    matches!(e.sqlite_error_code(), Some(DatabaseBusy | DatabaseLocked | FileLockingProtocolFailed))
}

/// What an error of the file system means.
pub(super) fn io_error(path: &Path, doing: &str, e: std::io::Error) -> Error {
    use std::io::ErrorKind;
    let detail = format!("{}: {e}", path.display());
    let error = match e.kind() {
        ErrorKind::PermissionDenied => Error::backend(NAME, doing, Fault::Denied, detail),
        ErrorKind::ReadOnlyFilesystem => Error::backend(NAME, doing, Fault::ReadOnly, detail),
        ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory | ErrorKind::InvalidFilename => {
            Error::config(shown(path), format!("cannot be used: {e}"), "a file in an existing directory")
        }
        _ => Error::unavailable(NAME, doing, Fault::Disk, detail),
    };
    error.with_source(e)
}

/// What an error of SQLite means. Several calls of one transaction share it.
pub(crate) fn sqlite_error(path: &Path, doing: &str, e: impl Into<Arc<rusqlite::Error>>) -> Error {
    let e = e.into();
    sorted(path, doing, &e).with_shared_source(e)
}

fn sorted(path: &Path, doing: &str, e: &rusqlite::Error) -> Error {
    let detail = format!("{}: {e}", path.display());
    let Some(code) = e.sqlite_error_code() else {
        // A column of another type than we write.
        return Error::backend(NAME, doing, Fault::Corrupt, detail);
    };
    match code {
        _ if is_busy(e) => {
            Error::unavailable(NAME, doing, Fault::StoreBusy, format!("{detail} (another program keeps it locked)"))
        }
        ErrorCode::OperationInterrupted => {
            let detail = format!("{detail} (it took too long: the file is very large, or damaged)");
            Error::unavailable(NAME, doing, Fault::Timeout, detail)
        }
        ErrorCode::DiskFull | ErrorCode::SystemIoFailure => Error::unavailable(NAME, doing, Fault::Disk, detail),
        ErrorCode::CannotOpen => Error::unavailable(NAME, doing, Fault::Connection, detail),
        ErrorCode::OutOfMemory => Error::unavailable(NAME, doing, Fault::OutOfMemory, detail),
        ErrorCode::ReadOnly => Error::backend(NAME, doing, Fault::ReadOnly, detail),
        ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied => {
            Error::backend(NAME, doing, Fault::Denied, detail)
        }
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::Unknown | ErrorCode::TooBig => {
            Error::backend(NAME, doing, Fault::Corrupt, detail)
        }
        _ => Error::backend(NAME, doing, Fault::Protocol, detail),
    }
}
