//! What the errors of MySQL and MariaDB mean.

use crate::error::{Error, Fault};
use crate::fence::drivers::Doing;
use crate::fence::marks::PATIENCE;
use crate::fence::sql::Dialect;

const NAME: &str = "mysql";

/// Bounds a call, and says what its error means.
pub(crate) async fn bounded<A>(doing: Doing<'_>, call: impl Future<Output = Result<A, mysql_async::Error>>) -> Result<A, Error> {
    match tokio::time::timeout(PATIENCE, call).await {
        Ok(answer) => answer.map_err(|e| sort(doing, &e).with_source(e)),
        Err(_) => Err(Error::unavailable(NAME, doing.what, Fault::Timeout, format!("waited {PATIENCE:?}"))),
    }
}

fn sort(Doing { what, table }: Doing<'_>, e: &mysql_async::Error) -> Error {
    let detail = e.to_string();
    let (fault, transient) = match e {
        mysql_async::Error::Server(answer) => match answer.code {
            // No such table, column, database.
            1146 | 1054 | 1049 => return table.missing(Dialect::Mysql, &answer.message),
            code => kind(code),
        },
        // By its words, because whether there is such a kind depends on the driver's features.
        mysql_async::Error::Io(e) if e.to_string().starts_with("TLS") => (Fault::Tls, false),
        mysql_async::Error::Io(_) => (Fault::Connection, true),
        mysql_async::Error::Driver(mysql_async::DriverError::ConnectionClosed) => (Fault::Connection, true),
        mysql_async::Error::Driver(mysql_async::DriverError::PoolDisconnected) => (Fault::Connection, false),
        _ => (Fault::Protocol, false),
    };
    if transient { Error::unavailable(NAME, what, fault, detail) } else { Error::backend(NAME, what, fault, detail) }
}

fn kind(code: u16) -> (Fault, bool) {
    match code {
        // Waited too long for a lock, deadlock, changed since the snapshot.
        1205 | 1213 | 1020 => (Fault::StoreBusy, true),
        // Too many connections, shutting down, killed.
        1040 | 1203 | 1226 | 1053 | 1077 | 1079 | 1317 | 1927 | 3169 => (Fault::Connection, true),
        1969 | 3024 => (Fault::Timeout, true),
        // A replica, which may be promoted any moment.
        1290 | 1792 | 1836 => (Fault::ReadOnly, true),
        1045 | 1698 | 1862 | 3118 => (Fault::Auth, false),
        1044 | 1142 | 1143 | 1227 => (Fault::Denied, false),
        1021 | 1114 => (Fault::Disk, true),
        1037 | 1038 | 1041 => (Fault::OutOfMemory, true),
        1034 | 1035 | 1194 | 1195 => (Fault::Corrupt, false),
        _ => (Fault::Protocol, false),
    }
}
