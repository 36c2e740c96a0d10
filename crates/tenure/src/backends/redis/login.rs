//! The login at a server.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::FutureExt;
use redis::{ProtocolVersion, RedisConnectionInfo, RedisError};

use super::fault::is_auth;
use crate::store::Credentials;

type Asked = Pin<Box<dyn Future<Output = Result<Credentials, Box<dyn StdError + Send + Sync>>> + Send>>;

/// Who logs in.
#[derive(Clone, Default)]
pub(super) enum Login {
    #[default]
    Nobody,
    As(Credentials),
    /// Whoever the program names, asked for each connection.
    From(Arc<dyn Fn() -> Asked + Send + Sync>),
}

impl Login {
    pub(super) fn asked<F, C, E>(ask: F) -> Self
    where
        F: Fn() -> C + Send + Sync + 'static,
        C: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let ask = Arc::new(ask);
        Self::From(Arc::new(move || {
            let ask = Arc::clone(&ask);
            // A panic of the program's own code is its error, and ends nothing of ours.
            let asked = AssertUnwindSafe(async move { ask().await.map_err(Into::into) }).catch_unwind();
            Box::pin(async { asked.await.unwrap_or_else(|_| Err("it panicked".into())) })
        }))
    }

    /// A refusal of credentials that were asked for may be over with the next ones.
    pub(super) fn refused(&self, e: RedisError) -> RedisError {
        match self {
            Self::From(_) if is_auth(&e) => NoCredentials(e.to_string()).into(),
            _ => e,
        }
    }

    /// What is said to a server over a new connection.
    pub(super) async fn settings(&self, database: u32) -> Result<RedisConnectionInfo, NoCredentials> {
        let asked = match self {
            Self::Nobody => None,
            Self::As(credentials) => Some(credentials.clone()),
            Self::From(ask) => Some(ask().await.map_err(|e| NoCredentials(format!("the credentials could not be had: {e}")))?),
        };
        let mut settings = RedisConnectionInfo::default()
            .set_protocol(ProtocolVersion::RESP3)
            .set_lib_name("tenure", env!("CARGO_PKG_VERSION"))
            .set_db(database.into());
        let Some(credentials) = asked else { return Ok(settings) };
        if let Some(user) = credentials.user() {
            settings = settings.set_username(user);
        }
        if let Some(password) = credentials.password() {
            settings = settings.set_password(password.text());
        }
        Ok(settings)
    }
}

/// There are no good credentials at this time.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NoCredentials(String);

impl From<NoCredentials> for RedisError {
    fn from(why: NoCredentials) -> Self {
        io::Error::other(why).into()
    }
}

impl From<Option<Credentials>> for Login {
    fn from(credentials: Option<Credentials>) -> Self {
        credentials.map_or(Self::Nobody, Self::As)
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").finish_non_exhaustive()
    }
}
