//! stub
use crate::backend::Backend;
use crate::connect::{Address, Context};
use crate::error::Result;
use futures_util::future::BoxFuture;
use std::sync::Arc;

pub(crate) fn open(_address: Address, _context: Context) -> BoxFuture<'static, Result<Arc<dyn Backend>>> {
    todo!()
}
