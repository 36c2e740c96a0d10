//! The shop on real servers: what it answers, and ten thousand orders on a bad day.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};
use tenure_testkit::{Needs, RedisServer, Test, postgres};

fn main() {
    tenure_testkit::run(vec![
        Test::new(
            "an_order_is_sold_once_and_answered_always",
            Needs::RedisAndPostgres,
            an_order_is_sold_once_and_answered_always,
        ),
        Test::new("ten_thousand_orders_on_a_bad_day_sell_what_there_is", Needs::RedisAndPostgres, with_the_fence),
        Test::new("the_same_day_without_the_fence_sells_more", Needs::RedisAndPostgres, without_the_fence),
    ])
}

/// Runs the load program on servers of its own.
fn load(args: &[&str]) -> (Output, Value) {
    let redis = RedisServer::start();
    let mut command = Command::new(env!("CARGO_BIN_EXE_load"));
    command.env("DATABASE_URL", postgres::database()).env("REDIS_URL", redis.url()).args(args);
    let output = command.output().expect("it runs");
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    println!("{report:#}");
    (output, report)
}

fn with_the_fence() {
    let (output, report) = load(&[]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!((&report["sold"], &report["oversold"], &report["sold_twice"]), (&9_500.into(), &0.into(), &0.into()));
    assert!(report["troubles"].as_u64() >= Some(20), "it was a bad day: {report:#}");
}

fn without_the_fence() {
    let (output, report) = load(&["--no-fence"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(report["oversold"].as_i64() > Some(0), "{report:#}");
}

/// An instance of the shop, ended with the test.
struct Instance {
    child: Child,
    address: String,
}

impl Instance {
    fn start(database: &str, redis: &RedisServer) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shop"));
        command.env("DATABASE_URL", database).env("TENURE_URL", redis.url()).env("LISTEN", "127.0.0.1:0");
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut said = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut said).expect("it says where it listens");
        Self { child, address: said.trim_end().trim_start_matches("listening on ").to_owned() }
    }

    fn ask(&self, request: &str, body: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(&self.address).expect("connected");
        let head = "Host: shop\r\nConnection: close\r\nContent-Type: application/json";
        write!(stream, "{request} HTTP/1.1\r\n{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).expect("asked");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        (head[9..12].parse().expect("a status"), serde_json::from_str(body).unwrap_or_default())
    }

    fn order(&self, id: &str, item: &str) -> (u16, Value) {
        self.ask("POST /orders", &json!({ "id": id, "item": item }).to_string())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn an_order_is_sold_once_and_answered_always() {
    let (database, redis) = (postgres::database(), RedisServer::start());
    let [a, b] = [(); 2].map(|()| Instance::start(&database, &redis));
    let fill =
        "INSERT INTO stock (item, segment, units) VALUES ('book', 0, 1), ('ticket', 0, 0), ('ticket', 1, 1), ('ticket', 2, 1)";
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { postgres::connect(&database).await.batch_execute(fill).await.expect("filled") });

    let (status, receipt) = a.order("1", "book");
    assert_eq!((status, &receipt["item"]), (201, &json!("book")), "{receipt}");
    assert_eq!(
        b.order("1", "book"),
        (201, receipt),
        "the same order is answered with the same receipt, also when nothing is left"
    );
    assert_eq!(b.order("2", "book").0, 409);
    assert_eq!(a.ask("GET /stock/book", ""), (200, json!({ "item": "book", "units": 0 })));
    // The first part is empty: it is sold from the others.
    assert_eq!((a.order("3", "ticket").0, b.order("4", "ticket").0, a.order("5", "ticket").0), (201, 201, 409));
    assert_eq!(a.order("6", "no such item").0, 409);
    assert_eq!(a.ask("POST /orders", "{}").0, 422);
}
