//! Reads a server's replies, whatever they are.

use redis::Value;

use super::fault::NAME;
use crate::error::{Error, Fault, Result};
use crate::name::{OwnerId, Token};

/// An owner, or what Redisson's read/write lock keeps in the same hash.
pub(super) fn is_redisson_field(field: &str) -> bool {
    let owner = field.strip_suffix(":write").unwrap_or(field);
    field == "mode" || owner.parse::<OwnerId>().is_ok()
}

pub(super) fn array(value: Value, doing: &str) -> Result<Vec<Value>> {
    match value {
        Value::Array(items) => Ok(items),
        _ => Err(unexpected(doing)),
    }
}

pub(super) fn int(value: &Value) -> Option<i64> {
    match value {
        Value::Int(n) => Some(*n),
        other => text(other)?.parse().ok(),
    }
}

pub(super) fn token_of(value: &Value) -> Option<Token> {
    text(value)?.parse().ok()
}

pub(super) fn unexpected(doing: &str) -> Error {
    Error::backend(NAME, doing, Fault::Protocol, "the server's answer has another form than expected")
}

/// A reply as text, if it is one.
pub(super) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        // The latter is what RESP3 makes of longer texts for people, as CLUSTER INFO is one.
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

/// A field of a map, or of an array of names and values, which is the same to older servers.
pub(super) fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    match value {
        Value::Map(fields) => fields.iter().find(|(field, _)| text(field) == Some(name)).map(|(_, value)| value),
        Value::Array(items) => items.chunks_exact(2).find(|pair| text(&pair[0]) == Some(name)).map(|pair| &pair[1]),
        _ => None,
    }
}
