//! [`Marks`]: the largest token per resource, in any storage.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;

use crate::error::{Error, Fault, Result};
use crate::name::Token;

/// Remembers the largest token of each resource. For storages that cannot do so themselves.
///
/// The check comes before the write: a request that passes may be overtaken before it is carried out. Where the written data itself can
/// keep a token (a row, a key), check it there.
#[async_trait]
pub trait Marks: std::fmt::Debug + Send + Sync {
    /// Raises the mark to this token, never lowers it, and returns the largest one seen, this one included.
    ///
    /// Where there is no room for a new mark that is an error ([`Fault::OutOfMemory`]): to forget another one would let a late write pass.
    async fn raise(&self, resource: &str, token: Token) -> Result<Token>;
}

/// Marks of one process: gone with it. For tests, and for services that are one process and lose what they write with it.
///
/// Every resource that was ever named stays: where senders invent names, set [how many](Self::at_most).
#[derive(Debug)]
pub struct MemoryMarks {
    largest: Mutex<HashMap<String, Token>>,
    most: usize,
}

impl Default for MemoryMarks {
    fn default() -> Self {
        Self::at_most(usize::MAX)
    }
}

impl MemoryMarks {
    /// Keeps so many marks, and refuses further resources: to forget a mark would let a late write pass.
    #[must_use]
    pub fn at_most(resources: usize) -> Self {
        Self { largest: Mutex::default(), most: resources }
    }
}

#[async_trait]
impl Marks for MemoryMarks {
    async fn raise(&self, resource: &str, token: Token) -> Result<Token> {
        let mut largest = self.largest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mark) = largest.get_mut(resource) {
            *mark = token.max(*mark);
            return Ok(*mark);
        }
        if largest.len() >= self.most {
            let detail = format!("it keeps the marks of {} resources, and may keep no more", self.most);
            return Err(Error::unavailable("memory", "raising a mark", Fault::OutOfMemory, detail));
        }
        largest.insert(resource.to_owned(), token);
        Ok(token)
    }
}
