//! Shows which client a server takes for the holder, by keyspace events: reading an expired key would delete it.

use std::time::Instant;

use redis::Connection;

use crate::actor::{ActorContext, lock};
use crate::error::Result;
use crate::server::Server;
use crate::timeline::{During, OpenSpan};

/// Shows on a lane which client the server takes for the holder, from now on until the server ends.
pub(crate) fn watch(server: &Server, key: &str, lane: usize, context: ActorContext) -> Result<()> {
    server.ask::<()>(&["CONFIG", "SET", "notify-keyspace-events", "KA"])?;
    let (mut told, mut raw, key) = (server.lab()?, server.lab()?, key.to_owned());
    told.set_read_timeout(None)?;
    let mut events = redis::cmd("SUBSCRIBE");
    events.arg(format!("__keyspace@0__:{key}"));
    told.send_packed_command(&events.get_packed_command())?;
    told.recv_response()?;
    std::thread::spawn(move || {
        let mut seen: Option<(String, OpenSpan)> = None;
        // Ends with the server.
        while told.recv_response().is_ok() {
            let at = Instant::now();
            let holder = holder(&mut raw, &key).map(|known_as| name(&known_as, &context));
            if seen.as_ref().map(|(name, _)| name) == holder.as_ref() {
                continue;
            }
            if let Some((_, span)) = seen.take() {
                context.recorder.end(span, at);
            }
            seen = holder.map(|name| {
                let span = context.recorder.begin(lane, at, During::Held, &*name);
                (name, span)
            });
        }
        if let Some((_, span)) = seen {
            context.recorder.end(span, Instant::now());
        }
    });
    Ok(())
}

/// The owner in a plain lock and in a hash of owners.
fn holder(raw: &mut Connection, key: &str) -> Option<String> {
    let kind: String = redis::cmd("TYPE").arg(key).query(raw).ok()?;
    match &*kind {
        "string" => redis::cmd("GET").arg(key).query(raw).ok()?,
        "hash" => redis::cmd("HKEYS").arg(key).query::<Vec<String>>(raw).ok()?.into_iter().next(),
        _ => None,
    }
}

/// Owners are an actor's name or id, and something that makes them unique.
fn name(known_as: &str, context: &ActorContext) -> String {
    let who = known_as.split(':').next().unwrap_or_default();
    let names = lock(&context.known_as);
    names.iter().find(|(id, _)| id == who).map_or_else(|| who.to_owned(), |(_, name)| name.clone())
}
