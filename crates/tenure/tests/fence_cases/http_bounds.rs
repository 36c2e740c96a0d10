//! What a sender cannot do to a fence between services: close a resource forever, fill the memory.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::StatusCode;
use tenure::fence::http::FenceLayer;
use tenure::fence::marks::{Marks, MemoryMarks};
use tenure::fence::redis::RedisMarks;
use tenure::{Error, Fault, Token};

use super::http::{FAILED, echo_behind, error, memory, put};
use super::redis::{get, link};
use tenure_testkit::RedisServer;
use tenure_testkit::locker::block_on;

const HOUR: Duration = Duration::from_secs(3600);
const BAD: StatusCode = StatusCode::BAD_REQUEST;

/// A token of so long after now.
fn in_the_future(ahead: Duration) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from((now + ahead).as_micros()).expect("not that far")
}

pub(crate) fn a_token_far_ahead_of_the_clock_is_refused_and_closes_nothing() {
    block_on(async {
        let layer = memory().ahead(HOUR);
        let mut client = echo_behind(layer.clone()).await;
        for far in [in_the_future(2 * HOUR), i64::MAX as u64 - 1, i64::MAX as u64] {
            let answer = put(&mut client, "/a", far).await;
            assert_eq!((answer.status, error(&answer)), (BAD, "token_ahead".to_owned()));
            let body = answer.json();
            assert_eq!((&body["resource"], &body["token"]), (&"/a".into(), &far.to_string().into()));
            assert!(answer.text().contains("3600s"), "says what is allowed: {}", answer.text());
        }
        // What locks give out, and what was given out by a clock that is a little ahead.
        for fine in [5, in_the_future(Duration::ZERO), in_the_future(HOUR / 2)] {
            assert_eq!(put(&mut client, "/a", fine).await.status, StatusCode::OK, "{fine}");
        }
        assert_eq!(put(&mut client, "/a", 5).await.status, FAILED);
        assert_eq!((layer.stats().accepted, layer.stats().stale), (3, 1));
        // A bound that reaches past the last token is none.
        let mut client = echo_behind(memory().ahead(Duration::MAX)).await;
        assert_eq!(put(&mut client, "/a", i64::MAX as u64).await.status, StatusCode::OK);
    });
}

pub(crate) fn marks_in_memory_that_are_full_refuse_new_names_and_forget_no_old_one() {
    block_on(async {
        let marks = Arc::new(MemoryMarks::at_most(2));
        let layer = FenceLayer::new(Arc::clone(&marks) as Arc<dyn Marks>);
        let mut client = echo_behind(layer.clone()).await;
        for (path, token) in [("/a", 5), ("/b", 6), ("/a", 7)] {
            assert_eq!(put(&mut client, path, token).await.status, StatusCode::OK);
        }
        for new in ["/c", "/d"] {
            let answer = put(&mut client, new, 9).await;
            assert_eq!((answer.status, error(&answer)), (StatusCode::SERVICE_UNAVAILABLE, "fence_full".to_owned()));
        }
        assert_eq!(put(&mut client, "/a", 6).await.status, FAILED, "nothing was forgotten to make room");
        assert_eq!(put(&mut client, "/b", 5).await.status, FAILED);
        assert_eq!(put(&mut client, "/b", 6).await.status, StatusCode::OK);
        assert_eq!((layer.stats().accepted, layer.stats().stale), (4, 2));
        let full = marks.raise("/c", Token::new(9)).await.expect_err("full");
        assert!(matches!(full, Error::Unavailable { fault: Fault::OutOfMemory, .. }) && full.is_transient(), "{full}");
        assert!(full.to_string().contains("2 resources"), "{full}");
    });
}

pub(crate) fn marks_for_which_redis_has_no_room_let_nobody_in() {
    let server = RedisServer::start();
    block_on(async {
        let mut client = echo_behind(FenceLayer::new(Arc::new(RedisMarks::new(link(&server.url()).await)))).await;
        assert_eq!(put(&mut client, "/a", 5).await.status, StatusCode::OK);
        get::<()>(&mut server.raw(), &["CONFIG", "SET", "maxmemory", "1"]);
        for path in ["/b", "/a"] {
            let answer = put(&mut client, path, 9).await;
            assert_eq!((answer.status, error(&answer)), (StatusCode::SERVICE_UNAVAILABLE, "fence_full".to_owned()));
        }
    });
}

pub(crate) fn a_resource_that_is_no_name_of_a_lock_is_a_bad_request_whatever_keeps_the_marks() {
    let server = RedisServer::start();
    block_on(async {
        let stores: [Arc<dyn Marks>; 2] =
            [Arc::new(MemoryMarks::default()), Arc::new(RedisMarks::new(link(&server.url()).await))];
        for marks in stores {
            let mut client = echo_behind(FenceLayer::new(Arc::clone(&marks))).await;
            let longest = "/".to_owned() + &"x".repeat(511);
            assert_eq!(put(&mut client, &longest, 5).await.status, StatusCode::OK);
            let answer = put(&mut client, &(longest + "y"), 5).await;
            assert_eq!((answer.status, error(&answer)), (BAD, "bad_resource".to_owned()));
            assert!(answer.text().contains("512") && answer.text().len() < 400, "{}", answer.text());
            let mut client = echo_behind(FenceLayer::new(marks).resource(|_| Some(String::new()))).await;
            assert_eq!(error(&put(&mut client, "/a", 5).await), "bad_resource");
        }
    });
}
