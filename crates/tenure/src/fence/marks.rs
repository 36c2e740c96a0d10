//! [`Marks`]: the largest token per resource, kept wherever it suits.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;

use crate::error::Result;
use crate::name::Token;

/// Remembers the largest token of each resource. For storages that cannot do so themselves.
///
/// The check is at the door: what is let through may be overtaken before it is carried out. Where the written thing itself can
/// keep a token (a row, a key), check it there.
#[async_trait]
pub trait Marks: std::fmt::Debug + Send + Sync {
    /// Raises the mark to this token, never lowers it, and returns the largest one seen, this one included.
    async fn raise(&self, resource: &str, token: Token) -> Result<Token>;
}

/// How long a store may take to raise a mark.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "redis", feature = "sqlite"))]
pub(crate) const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

/// Marks of one process: gone with it. For tests, and for services that are one process and lose what they write with it.
#[derive(Debug, Default)]
pub struct MemoryMarks {
    largest: Mutex<HashMap<String, Token>>,
}

#[async_trait]
impl Marks for MemoryMarks {
    async fn raise(&self, resource: &str, token: Token) -> Result<Token> {
        let mut largest = self.largest.lock().unwrap_or_else(PoisonError::into_inner);
        let mark = largest.entry(resource.to_owned()).or_insert(token);
        *mark = token.max(*mark);
        Ok(*mark)
    }
}
