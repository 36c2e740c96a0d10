//! What is said to a server over a new connection.

use redis::{Value, cmd, pipe};
use tracing::debug;

use super::connection::Connection;
use super::fault::{Failure, is_broken};
use super::reply::{field, text};
use super::shared::Wake;

/// Turns on what wakes those who wait, and says what that is.
pub(super) async fn start_pushes(connection: &Connection, wanted: Option<Wake>) -> Result<Wake, Failure> {
    if wanted == Some(Wake::PubSub) {
        return Ok(Wake::PubSub);
    }
    // OPTIN: the server remembers only what it is told to. Not NOLOOP: with that a write of our own would make it forget, and
    // tell nobody of ours. The second is there for the right to it; it is about the next command, which reads nothing.
    let mut both = pipe();
    both.cmd("CLIENT").arg("TRACKING").arg("ON").arg("OPTIN").cmd("CLIENT").arg("CACHING").arg("YES");
    let answers = connection.send_all(&both, 0, 2).await;
    let refused = answers.and_then(|answers| answers.into_iter().try_for_each(|answer| answer.extract_error().map(drop)));
    match refused {
        Ok(()) => Ok(Wake::Tracking),
        Err(e) if is_broken(&e) || wanted.is_some() => Err(Failure::of("turning on CLIENT TRACKING and CACHING", &e)),
        Err(e) => {
            debug!(error = %e, "no CLIENT TRACKING and CACHING here; waiters subscribe");
            Ok(Wake::PubSub)
        }
    }
}

/// By its own word, which any user may ask for. A server or proxy that does not tell is taken for one.
pub(super) async fn says_it_is_master(connection: &Connection) -> Result<bool, Failure> {
    match cmd("HELLO").query_async::<Value>(&mut connection.clone()).await {
        Ok(hello) => Ok(field(&hello, "role").and_then(text).is_none_or(|role| role == "master")),
        Err(e) if is_broken(&e) => Err(Failure::of("connecting", &e)),
        Err(_) => Ok(true),
    }
}
