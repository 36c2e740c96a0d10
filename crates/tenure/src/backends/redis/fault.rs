//! What a Redis error means: which kind of trouble, and whether asking again may help.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::error::{Error, Fault};

pub(crate) const NAME: &str = "redis";

/// Sorts an error. Nothing here is ever "busy": that is an answer, not an error.
pub(crate) fn sort(doing: &str, e: &RedisError) -> Error {
    let (fault, transient) = kind(e);
    // redis-rs keeps credentials out of its errors; a server echoes none.
    let detail = e.to_string();
    if transient { Error::unavailable(NAME, doing, fault, detail) } else { Error::backend(NAME, doing, fault, detail) }
}

fn kind(e: &RedisError) -> (Fault, bool) {
    use ServerErrorKind as S;
    let text = e.to_string();
    match e.kind() {
        // A handshake fails with this kind also while the server loads or is full.
        ErrorKind::AuthenticationFailed if text.contains("LOADING") => (Fault::Loading, true),
        ErrorKind::AuthenticationFailed if text.contains("max number of clients") => (Fault::Connection, true),
        ErrorKind::AuthenticationFailed => (Fault::Auth, false),
        // A server that is killed says no farewell, which TLS calls by its own name.
        ErrorKind::Io if is_tls(&text) && !e.is_connection_dropped() => (Fault::Tls, false),
        ErrorKind::Io if e.is_timeout() => (Fault::Timeout, true),
        ErrorKind::Io => (Fault::Connection, true),
        ErrorKind::Server(S::BusyLoading) => (Fault::Loading, true),
        ErrorKind::Server(S::ReadOnly) => (Fault::ReadOnly, true),
        ErrorKind::Server(S::MasterDown | S::ClusterDown | S::TryAgain) => (Fault::Connection, true),
        ErrorKind::Server(S::NoPerm) => (Fault::Denied, false),
        ErrorKind::Server(_) | ErrorKind::Extension => by_words(e.code().unwrap_or_default(), &text),
        ErrorKind::RESP3NotSupported => (Fault::Protocol, false),
        _ if e.is_connection_dropped() || e.is_unrecoverable_error() => (Fault::Connection, true),
        _ => (Fault::Protocol, false),
    }
}

fn by_words(code: &str, text: &str) -> (Fault, bool) {
    match code {
        "WRONGTYPE" => (Fault::WrongType, false),
        "FOREIGN" => (Fault::ForeignFormat, false),
        "OOM" | "MISCONF" => (Fault::OutOfMemory, true),
        "BUSY" | "UNKILLABLE" => (Fault::StoreBusy, true),
        "NOREPLICAS" => (Fault::ReadOnly, true),
        "NOAUTH" | "WRONGPASS" => (Fault::Auth, false),
        "NOPERM" => (Fault::Denied, false),
        "LOADING" => (Fault::Loading, true),
        // Inside of a script a refusal has no code of its own.
        _ if text.contains("The user executing the script can't") => (Fault::Denied, false),
        _ if text.contains("increment or decrement would overflow") => (Fault::TokenExhausted, false),
        _ if text.contains("max number of clients") => (Fault::Connection, true),
        _ => (Fault::Protocol, false),
    }
}

fn is_tls(text: &str) -> bool {
    ["certificate", "TLS", "tls", "CorruptMessage", "InvalidContentType"].iter().any(|word| text.contains(word))
}
