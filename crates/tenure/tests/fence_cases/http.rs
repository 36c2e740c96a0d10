//! Fences between services: a real server on a loopback port, asked over a real connection.

use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::response::Response;
use axum::routing::any;
use axum::{Extension, Router};
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tenure::fence::http::{self as fence, FenceLayer, Fenced};
use tenure::fence::marks::{Marks, MemoryMarks};
use tenure::fence::redis::RedisMarks;
use tenure::fence::{FenceCounters, Stale};
use tenure::{Locker, Token};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::http_client::{Answer, Client};
use super::redis::{get, link};
use tenure_testkit::RedisServer;
use tenure_testkit::locker::{block_on, must};

const REQUIRED: StatusCode = StatusCode::PRECONDITION_REQUIRED;
pub(super) const FAILED: StatusCode = StatusCode::PRECONDITION_FAILED;

/// Says what it found in the request.
async fn echo(fenced: Option<Extension<Fenced>>) -> String {
    fenced.map_or_else(|| "unfenced".to_owned(), |Extension(fenced)| format!("{} {}", fenced.resource, fenced.token))
}

/// A server that listens until the runtime ends.
async fn serve(app: Router) -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move { axum::serve(listener, app).await });
    port
}

pub(super) async fn echo_behind(layer: FenceLayer) -> Client {
    Client::connect(serve(Router::new().fallback(any(echo)).layer(layer)).await).await
}

pub(super) fn memory() -> FenceLayer {
    FenceLayer::new(Arc::new(MemoryMarks::default()))
}

pub(super) async fn put(client: &mut Client, path: &str, token: u64) -> Answer {
    client.send("PUT", path, &[("Tenure-Token", token.to_string().as_bytes())], "body").await
}

pub(super) fn error(answer: &Answer) -> String {
    assert_eq!(answer.headers["content-type"], "application/json");
    let body = answer.json();
    assert!(body["message"].as_str().expect("a message").len() > 10, "{body}");
    body["error"].as_str().expect("a word").to_owned()
}

/// All over one connection: a refusal does not end it.
async fn what_is_smaller_is_refused(layer: FenceLayer) {
    let mut client = echo_behind(layer.clone()).await;
    for n in [5, 5, 9, 1 << 53, (1 << 53) + 1, i64::MAX as u64] {
        let answer = put(&mut client, "/stock/1", n).await;
        assert_eq!((answer.status, answer.text()), (StatusCode::OK, format!("/stock/1 {n}")));
    }
    let late = put(&mut client, "/stock/1", i64::MAX as u64 - 1).await;
    assert_eq!((late.status, error(&late)), (FAILED, "stale_token".to_owned()));
    let body = late.json();
    assert_eq!(body["resource"], "/stock/1");
    assert_eq!((&body["token"], &body["seen"]), (&json!("9223372036854775806"), &json!("9223372036854775807")));
    assert_eq!(put(&mut client, "/stock/2", 1).await.status, StatusCode::OK, "another resource");
    assert_eq!(put(&mut client, "/stock/1", i64::MAX as u64).await.status, StatusCode::OK);
    let stats = layer.stats();
    assert_eq!((stats.accepted, stats.stale), (8, 1));
}

pub(crate) fn a_request_with_a_smaller_token_is_refused_with_both() {
    block_on(what_is_smaller_is_refused(memory()));
}

pub(crate) fn processes_share_their_marks_in_redis() {
    let server = RedisServer::start();
    block_on(async {
        let marks = RedisMarks::new(link(&server.url()).await);
        what_is_smaller_is_refused(FenceLayer::new(Arc::new(marks.clone()))).await;
        // Two services that know nothing of each other.
        let (one, other) = (FenceLayer::new(Arc::new(marks.clone())), FenceLayer::new(Arc::new(marks)));
        let (mut one, mut other) = (echo_behind(one).await, echo_behind(other).await);
        assert_eq!(put(&mut one, "/a", 9).await.status, StatusCode::OK);
        assert_eq!(put(&mut other, "/a", 8).await.status, FAILED);
        assert_eq!(put(&mut other, "/a", 9).await.status, StatusCode::OK);
    });
}

pub(crate) fn a_request_without_a_token_is_asked_for_one() {
    block_on(async {
        let layer = memory();
        let mut client = echo_behind(layer.clone()).await;
        let answer = client.send("PUT", "/a", &[], "body").await;
        assert_eq!((answer.status, error(&answer)), (REQUIRED, "missing_token".to_owned()));
        assert!(answer.text().contains("tenure-token") && answer.json()["resource"] == "/a", "{}", answer.text());
        let mut client = echo_behind(layer.clone().optional()).await;
        assert_eq!(client.send("PUT", "/a", &[], "body").await.text(), "unfenced");
        assert_eq!((layer.stats().accepted, layer.stats().stale), (0, 0));
        // Who has one shows it there too.
        assert_eq!(put(&mut client, "/a", 5).await.text(), "/a 5");
        assert_eq!(put(&mut client, "/a", 4).await.status, FAILED);
        assert_eq!(client.send("PUT", "/a", &[("Tenure-Token", b"x")], "").await.status, StatusCode::BAD_REQUEST);
    });
}

pub(crate) fn what_is_no_token_is_a_bad_request() {
    block_on(async {
        let layer = memory();
        let mut client = echo_behind(layer.clone()).await;
        let odd: [&[u8]; 13] = [
            b"",
            b"x",
            b"-1",
            b"+5",
            b"05",
            b"5.0",
            b"5 5",
            b"5, 9",
            b"0x5",
            "5\u{e9}".as_bytes(),
            b"\xff\xfe",
            "\u{665}".as_bytes(),
            b"9223372036854775808",
        ];
        for odd in odd {
            let answer = client.send("PUT", "/a", &[("Tenure-Token", odd)], "body").await;
            assert_eq!((answer.status, error(&answer)), (StatusCode::BAD_REQUEST, "bad_token".to_owned()), "{odd:?}");
            assert!(answer.text().contains("9223372036854775807"), "says what is allowed: {}", answer.text());
        }
        // Also twice the same: one that is believed must be the only one.
        for second in [b"5", b"9"] {
            let twice: [(&str, &[u8]); 2] = [("Tenure-Token", b"5"), ("tenure-token", second)];
            let answer = client.send("PUT", "/a", &twice, "body").await;
            assert_eq!((answer.status, error(&answer)), (StatusCode::BAD_REQUEST, "bad_token".to_owned()));
            assert!(answer.text().contains("more than once"), "{}", answer.text());
        }
        assert_eq!(put(&mut client, "/a", 0).await.status, StatusCode::OK, "none of them has raised the mark");
    });
}

pub(crate) fn marks_that_cannot_be_asked_let_nobody_in() {
    let mut server = RedisServer::start();
    block_on(async {
        get::<()>(&mut server.raw(), &["SET", "tenure_mark:/foreign", "x"]);
        let marks = RedisMarks::new(link(&server.url()).await);
        let layer = FenceLayer::new(Arc::new(marks)).optional();
        let mut client = echo_behind(layer.clone()).await;
        let answer = put(&mut client, "/foreign", 5).await;
        assert_eq!((answer.status, error(&answer)), (StatusCode::INTERNAL_SERVER_ERROR, "fence_failed".to_owned()));
        server.kill();
        let answer = put(&mut client, "/a", 5).await;
        assert_eq!((answer.status, error(&answer)), (StatusCode::SERVICE_UNAVAILABLE, "fence_unavailable".to_owned()));
        assert!(!answer.text().contains("127.0.0.1") && !answer.text().contains("redis"), "{}", answer.text());
        assert_eq!(layer.stats().accepted, 0);
    });
}

pub(crate) fn the_resource_is_what_the_service_says_it_is() {
    block_on(async {
        let mut client = echo_behind(memory()).await;
        // Ways to write one path are one resource, however a late request writes it.
        assert_eq!(put(&mut client, "/stock/a:b?x=1", 9).await.text(), "/stock/a:b 9");
        for same in ["/stock/a%3Ab", "/stock/a%3ab?y=2", "/%73tock/%61:b"] {
            assert_eq!(put(&mut client, same, 8).await.status, FAILED, "{same}");
        }
        // And two paths are two.
        for other in ["/stock%2Fa:b", "/stock/a:b/", "/stock/a%253Ab", "/stock/%FF", "/stock/%25FF", "/stock/%252F"] {
            assert_eq!(put(&mut client, other, 1).await.status, StatusCode::OK, "{other}");
        }
        let chosen = memory().resource(|request| {
            let tenant = request.headers.get("x-tenant")?.to_str().ok()?;
            Some(format!("tenant:{tenant}"))
        });
        let mut client = echo_behind(chosen).await;
        let headers: [(&str, &[u8]); 2] = [("X-Tenant", b"7"), ("Tenure-Token", b"5")];
        assert_eq!(client.send("POST", "/any", &headers, "").await.text(), "tenant:7 5");
        assert_eq!(client.send("POST", "/any", &headers[1..], "").await.text(), "unfenced", "not about anything");
        assert_eq!(client.send("GET", "/any", &[], "").await.text(), "unfenced");
    });
}

pub(crate) fn the_sender_learns_of_it_and_its_locker_counts() {
    block_on(async {
        let mut client = echo_behind(memory()).await;
        let (one, other) =
            (Locker::connect("memory:").await.expect("a locker"), Locker::connect("memory:").await.expect("a locker"));
        let first = one.mutex("a").lock().await.expect("locked");
        // Tokens follow the clock, so that those of another store are larger too.
        let second = loop {
            let guard = other.mutex("a").lock().await.expect("locked");
            if guard.token() > first.token() {
                break guard;
            }
            guard.release().await.expect("given back");
        };
        let send = async |client: &mut Client, guard: &tenure::Guard| {
            let mut headers = HeaderMap::new();
            headers.insert(fence::TOKEN, "1".parse().expect("a value"));
            fence::stamp(&mut headers, guard);
            let headers: Vec<(&str, &[u8])> = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
            client.send("PUT", "/a", &headers, "body").await
        };
        let answer = send(&mut client, &second).await;
        assert_eq!((answer.status, fence::stale(answer.status, &answer.body, &second)), (StatusCode::OK, None));
        let answer = send(&mut client, &first).await;
        let stale = fence::stale(answer.status, &answer.body, &first).expect("too late");
        assert_eq!(stale, Stale { resource: "/a".to_owned(), token: first.token(), seen: second.token() });
        assert_eq!((one.stats().stale, other.stats().stale), (1, 0));
        // What is not about this token is none of its business.
        assert_eq!(fence::stale(answer.status, &answer.body, &second), None);
        assert_eq!(fence::stale(StatusCode::OK, &answer.body, &first), None);
        for body in
            ["", "no JSON", "{}", r#"{"error":"stale_token"}"#, r#"{"error":"other","resource":"/a","token":"5","seen":"9"}"#]
        {
            assert_eq!(fence::stale(FAILED, body.as_bytes(), &Token::new(5)), None, "{body}");
        }
        assert_eq!((one.stats().stale, other.stats().stale), (1, 0));
    });
}

/// A handler's own storage: it keeps the largest token with what it keeps.
#[derive(Debug, Default)]
struct Storage {
    written: Mutex<Vec<u64>>,
    counters: FenceCounters,
}

impl Storage {
    fn write(&self, fenced: &Fenced) -> Result<(), Stale> {
        let mut written = self.written.lock().expect("not poisoned");
        let seen = written.last().copied().unwrap_or(0).max(fenced.token.get());
        self.counters.check(&fenced.resource, fenced, Token::new(seen))?;
        written.push(fenced.token.get());
        Ok(())
    }
}

pub(crate) fn of_a_hundred_in_any_order_those_let_in_write_in_order() {
    let server = RedisServer::start();
    block_on(async {
        let stores: [Arc<dyn Marks>; 2] =
            [Arc::new(MemoryMarks::default()), Arc::new(RedisMarks::new(link(&server.url()).await))];
        for marks in stores {
            let (storage, layer) = (Arc::new(Storage::default()), FenceLayer::new(marks));
            let kept = Arc::clone(&storage);
            let write = async move |Extension(fenced): Extension<Fenced>| -> Response {
                tokio::task::yield_now().await;
                kept.write(&fenced).map_or_else(|stale| fence::refusal(&stale), |()| Response::default())
            };
            let port = serve(Router::new().route("/stock", any(write)).layer(layer.clone())).await;
            let mut requests = JoinSet::new();
            for i in 0..100_u64 {
                // Each of 1 to 100 once, in an order that looks like none.
                let token = (i * 37) % 100 + 1;
                requests.spawn(async move {
                    let answer = put(&mut Client::connect(port).await, "/stock", token).await;
                    let refused = fence::stale(answer.status, &answer.body, &Token::new(token));
                    assert_eq!(answer.status == StatusCode::OK, refused.is_none(), "{}", answer.text());
                    (token, refused)
                });
            }
            let answers = must("all answers", requests.join_all()).await;
            let written = storage.written.lock().expect("not poisoned").clone();
            assert!(written.is_sorted(), "{written:?}");
            assert_eq!(written.last(), Some(&100));
            let mut let_in: Vec<u64> = answers.iter().filter(|(_, refused)| refused.is_none()).map(|(token, _)| *token).collect();
            let_in.sort_unstable();
            assert_eq!(let_in, written, "who was told that it was written was written, and nobody else");
            let (door, inside) = (layer.stats(), storage.counters.stats());
            assert_eq!((door.accepted + door.stale, inside.accepted + inside.stale), (100, door.accepted));
        }
    });
}

pub(crate) fn who_is_overtaken_behind_the_door_is_refused_by_the_storage() {
    block_on(async {
        let (storage, entered, go) = (Arc::new(Storage::default()), Arc::new(Notify::new()), Arc::new(Notify::new()));
        let parts = (Arc::clone(&storage), Arc::clone(&entered), Arc::clone(&go));
        let write = async move |Extension(fenced): Extension<Fenced>| -> Response {
            let (storage, entered, go) = parts;
            if fenced.token == Token::new(5) {
                entered.notify_one();
                go.notified().await;
            }
            storage.write(&fenced).map_or_else(|stale| fence::refusal(&stale), |()| Response::default())
        };
        let port = serve(Router::new().route("/a", any(write)).layer(memory())).await;
        let slow = tokio::spawn(async move { put(&mut Client::connect(port).await, "/a", 5).await });
        must("it is let in", entered.notified()).await;
        assert_eq!(put(&mut Client::connect(port).await, "/a", 9).await.status, StatusCode::OK);
        go.notify_one();
        let answer = must("an answer", slow).await.expect("no panic");
        let stale = fence::stale(answer.status, &answer.body, &Token::new(5)).expect("as the door would have said it");
        assert_eq!((stale.resource.as_str(), stale.seen), ("/a", Token::new(9)));
        assert_eq!(*storage.written.lock().expect("not poisoned"), [9]);
    });
}

/// Insists on being asked whether it is ready before each call, as services with limits do.
#[derive(Debug)]
struct Strict {
    ready: bool,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self { ready: false }
    }
}

impl tower::Service<http::Request<Body>> for Strict {
    type Response = Response;
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<Result<Response, std::convert::Infallible>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        self.ready = true;
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<Body>) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called without having been asked");
        std::future::ready(Ok(Response::default()))
    }
}

pub(crate) fn only_a_service_that_was_ready_is_called() {
    use tower::{Layer, Service, ServiceExt};
    block_on(async {
        let mut service = memory().layer(Strict { ready: false });
        let mut calls = Vec::new();
        for n in [1_u64, 2, 1, 3, 3] {
            let mut request = http::Request::put("/a").body(Body::empty()).expect("a request");
            fence::stamp(request.headers_mut(), &Token::new(n));
            calls.push(service.ready().await.expect("ready").call(request));
        }
        // All of them are under way before the first is done.
        let mut answers = Vec::new();
        for call in calls {
            answers.push(call.await.expect("answered").status().as_u16());
        }
        assert_eq!(answers, [200, 200, 412, 200, 200]);
    });
}

pub(crate) fn the_answer_is_json_of_this_form() {
    let stale = Stale { resource: "a \"quoted\" \u{fc}".to_owned(), token: Token::new(5), seen: Token::new(9) };
    let answer: http::Response<String> = fence::refusal(&stale);
    let body: Value = serde_json::from_str(answer.body()).expect("JSON");
    let expected = json!({
        "error": "stale_token", "resource": stale.resource, "token": "5", "seen": "9", "message": stale.to_string(),
    });
    assert_eq!((answer.status(), body), (FAILED, expected));
    assert_eq!(fence::stale(answer.status(), answer.body().as_bytes(), &Token::new(5)), Some(stale));
}
