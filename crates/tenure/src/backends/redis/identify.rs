//! The identity of the server that answers, for a quorum.

use std::time::Duration;

use redis::Value;

use super::Redis;
use super::fault::NAME;
use super::keys;
use super::question::ScriptCall;
use super::reply::{text, unexpected};
use super::scripts::FAMILY;
use crate::backend::{InUse, Server};
use crate::error::{Error, Fault, Result};

const DOING: &str = "identifying";

impl Redis {
    pub(super) async fn who_answers(&self, longest: Duration) -> Result<Server> {
        let leases = keys::leases(&self.prefix);
        let slot = self.router.slot_of_key(&leases);
        // Rounded up: a lease that is told shorter than it is would be forgotten too soon.
        let longest = longest.as_nanos().div_ceil(1_000_000).to_string();
        let answer = self.eval(DOING, slot, &ScriptCall::new(&FAMILY.identify, &[leases], &[longest])).await?;
        let Value::Array(items) = &answer.value else { return Err(unexpected(DOING)) };
        let [id, Value::Int(up), Value::Int(master), Value::Int(seconds), Value::Int(micros), Value::Array(leases)] = &**items
        else {
            return Err(unexpected(DOING));
        };
        let (id, Ok(up)) = (text(id).unwrap_or_default(), u64::try_from(*up)) else { return Err(silent()) };
        if id.is_empty() {
            return Err(silent());
        }
        let number = |n: i64| u64::try_from(n).map_err(|_| unexpected(DOING));
        Ok(Server {
            id: id.to_owned(),
            // The server takes the second of its start from the present one: it may be almost a second younger.
            up: Some(Duration::from_secs(up.saturating_sub(1))),
            replica: *master != 1,
            clock_micros: number(*seconds)?.saturating_mul(1_000_000).saturating_add(number(*micros)?),
            leases: leases.chunks(2).map(in_use).collect::<Result<_>>()?,
            connection: answer.live.id,
        })
    }
}

fn in_use(pair: &[Value]) -> Result<InUse> {
    let [Value::Int(lease), Value::Int(for_long)] = pair else { return Err(unexpected(DOING)) };
    let millis = |n: i64| u64::try_from(n).map(Duration::from_millis).map_err(|_| unexpected(DOING));
    Ok(InUse { lease: millis(*lease)?, for_long: millis(*for_long)? })
}

fn silent() -> Error {
    let detail = "INFO does not say which process answers (run_id) and since when (uptime_in_seconds)";
    Error::backend(NAME, DOING, Fault::Protocol, detail)
}
