//! [`Builder`]: the options of a locker, for threads.

use std::time::Duration;

use tokio::runtime::Handle;

use super::{Locker, block_on};
use crate::backend::Opened;
use crate::clock::{Clock, Drift};
use crate::error::Result;
use crate::retry::RetryPolicy;
use crate::store::StoreOptions;

/// As [`crate::Builder`], for threads.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it connects"]
pub struct Builder(pub(super) crate::Builder);

/// Methods that only change the options.
macro_rules! options {
    ($($name:ident: $type:ty),*) => {
        $(
            #[doc = concat!("As [`crate::Builder::", stringify!($name), "`].")]
            pub fn $name(self, $name: $type) -> Self {
                Self(self.0.$name($name))
            }
        )*
    };
}

impl Builder {
    options!(lease: Duration, timeout: Duration, retry: RetryPolicy, drift: Drift, about: impl Into<String>, prefix: impl Into<String>, clock: Clock, runtime: Handle);

    /// As [`crate::Builder::connect`].
    pub fn connect(self, url: &str) -> Result<Locker> {
        block_on(self.0.connect(url)).map(Locker)
    }

    /// As [`crate::Builder::connect_with`].
    pub fn connect_with(self, options: impl StoreOptions) -> Result<Locker> {
        block_on(self.0.connect_with(options)).map(Locker)
    }

    /// As [`crate::Builder::backend`].
    pub fn backend(self, store: impl Into<Opened>) -> Result<Locker> {
        self.0.backend(store).map(Locker)
    }
}
