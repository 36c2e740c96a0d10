//! What the scripts of fences, marks and records answer.

use std::time::Duration;

use futures_util::FutureExt;
use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, Pipeline, RedisError, RedisFuture, Value};

use crate::fence::marks::Marks;
use crate::fence::redis::{RedisFence, RedisMarks};
use crate::name::Token;
use crate::once::{Begin, Begun, Finished, Key, Records, RedisRecords};

/// A connection over which every question has the same answer.
#[derive(Clone)]
struct Parrot(Value);

impl ConnectionLike for Parrot {
    fn req_packed_command<'a>(&'a mut self, _: &'a Cmd) -> RedisFuture<'a, Value> {
        let answer = self.0.clone();
        async move { answer.extract_error() }.boxed()
    }

    fn req_packed_commands<'a>(&'a mut self, _: &'a Pipeline, _: usize, _: usize) -> RedisFuture<'a, Vec<Value>> {
        async { Err(RedisError::from((ErrorKind::Client, "no pipelines here"))) }.boxed()
    }

    fn get_db(&self) -> i64 {
        0
    }
}

/// A write that is let through has the largest token, and tokens are those that stores hand out.
pub(crate) fn fences(data: &[u8]) {
    let Ok(answer) = redis::parse_redis_value(data) else { return };
    let (connection, mine) = (Parrot(answer), Token::new(7));
    let sound = |token: Token| assert!(i64::try_from(token.get()).is_ok(), "{token}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let fence = RedisFence::new(connection.clone());
        let _written: Result<(), _> = fence.set("k", "v", &mine).await;
        let _deleted: Result<bool, _> = fence.delete("k", &mine).await;
        let _left: Result<_, _> = fence.decrement("k", 1, &mine).await;
        if let Ok(seen) = RedisMarks::new(connection.clone()).raise("r", mine).await {
            sound(seen);
        }
        let (records, key) = (RedisRecords::new(connection), Key::new("k").expect("a key"));
        let keep = Duration::from_secs(1);
        match records.begin(&key, Begin { token: mine, keep, repeat: false }).await {
            Ok(Begun::Yours { unfinished }) => unfinished.into_iter().for_each(sound),
            Ok(Begun::Done { token, .. } | Begun::Unfinished { token } | Begun::Stale { seen: token }) => sound(token),
            Err(_) => {}
        }
        if let Ok(Finished::Stale { seen }) = records.finish(&key, mine, b"1", keep).await {
            sound(seen);
        }
        if let Ok(Some(record)) = records.look(&key).await {
            sound(record.token);
            record.unfinished.into_iter().for_each(sound);
            let _value: crate::Result<Option<serde_json::Value>> = record.value();
        }
        if let Ok(Some(left)) = records.forget(&key, mine).await {
            sound(left);
        }
    });
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_record_cannot_show_a_token_that_no_store_hands_out() {
        super::fences(b"*3\r\n$5\r\nstale\r\n$20\r\n18446744073709551615\r\n_\r\n");
    }
}
