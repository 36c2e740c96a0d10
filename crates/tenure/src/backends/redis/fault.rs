//! What a Redis error means: which kind of trouble, and whether asking again may help.

use std::error::Error as _;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::frames::Breach;
use super::login::NoCredentials;
use crate::error::{Error, Fault, Source};

pub(super) const NAME: &str = "redis";

/// A call without an answer, and what that says of the server.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: Error,
    pub(super) cause: Cause,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Another server has this slot.
    Moved(String),
    /// Another server is about to have this slot, and has this key already.
    Ask(String),
    /// The server is gone, or serves no more.
    Lost,
    /// The server is not one of a cluster.
    Alone,
    Other,
}

impl Failure {
    pub(super) fn of(doing: &str, e: &RedisError) -> Self {
        let cause = match (e.kind(), e.redirect_node()) {
            (ErrorKind::Server(ServerErrorKind::Moved), Some((to, _))) => Cause::Moved(to.to_owned()),
            (ErrorKind::Server(ServerErrorKind::Ask), Some((to, _))) => Cause::Ask(to.to_owned()),
            (ErrorKind::Server(ServerErrorKind::ClusterDown | ServerErrorKind::MasterDown), _) => Cause::Lost,
            (ErrorKind::Server(ServerErrorKind::BusyLoading), _) => Cause::Lost,
            _ if is_broken(e) => Cause::Lost,
            _ if says(e, "This instance has cluster support disabled") => Cause::Alone,
            _ => Cause::Other,
        };
        Self { error: sort(doing, e), cause }
    }

    pub(super) fn lost(error: Error) -> Self {
        Self { error, cause: Cause::Lost }
    }

    pub(super) fn other(error: Error) -> Self {
        Self { error, cause: Cause::Other }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

/// Whether the server has never heard of the command.
pub(super) fn is_unknown_command(e: &RedisError) -> bool {
    says(e, "unknown command")
}

/// Whether these are the first words of a server's answer that has no code of its own.
fn says(e: &RedisError, words: &str) -> bool {
    let no_code = e.kind() == ErrorKind::Server(ServerErrorKind::ResponseError);
    no_code && e.detail().is_some_and(|detail| detail.starts_with(words))
}

/// Whether a new connection is needed; a demoted server may have a successor under the same name.
pub(super) fn is_broken(e: &RedisError) -> bool {
    e.is_unrecoverable_error()
        || e.is_connection_dropped()
        || e.is_io_error()
        || e.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
        || e.code() == Some("UNBLOCKED")
}

/// Sorts an error. Nothing here is ever "busy": that is an answer, not an error.
pub(crate) fn sort(doing: &str, e: &RedisError) -> Error {
    let (fault, transient) = kind(e);
    // redis-rs keeps credentials out of its errors; what a server echoes of them is left out where it greets.
    let detail = e.to_string();
    let error = if transient { Error::unavailable } else { Error::backend }(NAME, doing, fault, detail);
    error.with_source(e.clone())
}

/// Sorts what a script says of one of many, for which it does not fail as a whole.
pub(super) fn refused(doing: &str, why: &str) -> Error {
    let (fault, transient) = by_words(why.split(' ').next().unwrap_or_default(), why);
    if transient { Error::unavailable(NAME, doing, fault, why) } else { Error::backend(NAME, doing, fault, why) }
}

/// Whether the server does not take the credentials.
pub(super) fn is_auth(e: &RedisError) -> bool {
    kind(e) == (Fault::Auth, false)
}

fn kind(e: &RedisError) -> (Fault, bool) {
    use ServerErrorKind as S;
    let text = e.to_string();
    match e.kind() {
        // A handshake fails with this kind also while the server loads or is full.
        ErrorKind::AuthenticationFailed if text.contains("LOADING") => (Fault::Loading, true),
        ErrorKind::AuthenticationFailed if text.contains("max number of clients") => (Fault::Connection, true),
        ErrorKind::AuthenticationFailed => (Fault::Auth, false),
        ErrorKind::Io if is_caused_by::<Breach>(e) => (Fault::Protocol, false),
        ErrorKind::Io if is_caused_by::<NoCredentials>(e) => (Fault::Auth, true),
        // A server that is killed says no farewell, which TLS calls by its own name.
        ErrorKind::Io if is_tls(&text) && !e.is_connection_dropped() => (Fault::Tls, false),
        ErrorKind::Io if e.is_timeout() => (Fault::Timeout, true),
        ErrorKind::Io => (Fault::Connection, true),
        ErrorKind::Server(S::BusyLoading) => (Fault::Loading, true),
        ErrorKind::Server(S::ReadOnly) => (Fault::ReadOnly, true),
        ErrorKind::Server(S::MasterDown | S::ClusterDown) => (Fault::Connection, true),
        ErrorKind::Server(S::TryAgain) => (Fault::Moving, true),
        ErrorKind::Server(S::Moved | S::Ask) => (Fault::Clustered, false),
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
        // What was waited for cannot come any more: the server has become a replica.
        "UNBLOCKED" => (Fault::ReadOnly, true),
        "NOREPLICAS" => (Fault::ReadOnly, true),
        "NOAUTH" | "WRONGPASS" => (Fault::Auth, false),
        "NOPERM" => (Fault::Denied, false),
        "LOADING" => (Fault::Loading, true),
        // Inside of a script a refusal has no code of its own.
        _ if text.contains("The user executing the script can't") => (Fault::Denied, false),
        // The same from Redis 7.2 on.
        _ if text.contains("ACL failure in script") => (Fault::Denied, false),
        _ if text.contains("increment or decrement would overflow") => (Fault::TokenExhausted, false),
        _ if text.contains("max number of clients") => (Fault::Connection, true),
        _ => (Fault::Protocol, false),
    }
}

/// Whether it is what we said ourselves. redis-rs passes on what it was told, in an Arc.
fn is_caused_by<T: std::error::Error + 'static>(e: &RedisError) -> bool {
    let inner = e.source().and_then(|source| source.downcast_ref::<Source>());
    let io = inner.and_then(|inner| inner.downcast_ref::<std::io::Error>());
    io.and_then(std::io::Error::get_ref).is_some_and(|said| said.is::<T>())
}

fn is_tls(text: &str) -> bool {
    ["certificate", "TLS", "tls", "CorruptMessage", "InvalidContentType", "fatal alert"].iter().any(|word| text.contains(word))
}
