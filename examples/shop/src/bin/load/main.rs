//! Ten thousand purchases from three instances of the shop that are killed, stopped and robbed of their locks meanwhile.
//!
//! ```sh
//! DATABASE_URL=postgres://… REDIS_URL=redis://… cargo run --release -p shop --bin load
//! ```
//! It empties the shop's tables and the Redis database first. `--no-fence` shows the same day without the fence.

mod instance;
mod trouble;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::json;
use tokio_postgres::NoTls;

use instance::Instances;

type Anything = Box<dyn std::error::Error + Send + Sync>;

/// Sends orders to instances of the shop while they are in trouble, and counts what was sold.
#[derive(Parser)]
struct Args {
    /// The shop's database.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    database: String,
    /// The server that keeps the locks.
    #[arg(long, env = "REDIS_URL", hide_env_values = true)]
    redis: String,
    /// How many orders are placed.
    #[arg(long, default_value_t = 10_000)]
    orders: u64,
    /// How much there is of all items together.
    #[arg(long, default_value_t = 9_500)]
    stock: u64,
    /// How many instances serve.
    #[arg(long, default_value_t = 3)]
    instances: usize,
    /// How many orders between one trouble and the next.
    #[arg(long, default_value_t = 400)]
    every: u64,
    /// Without the fence, to see what it is good for.
    #[arg(long)]
    no_fence: bool,
}

/// What customers do, and how far they are.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    next: AtomicU64,
    pub(crate) answered: AtomicU64,
    sold_out: AtomicU64,
    repeated: AtomicU64,
}

/// Four fifths want the ticket, which has five segments; the rest want the book, which has one.
fn item(order: u64) -> &'static str {
    if order.is_multiple_of(5) { "book" } else { "ticket" }
}

#[tokio::main]
async fn main() -> Result<(), Anything> {
    let args = Args::parse();
    let (database, connection) = tokio_postgres::connect(&args.database, NoTls).await?;
    tokio::spawn(connection);
    let locks: redis::Client = redis::Client::open(&*args.redis)?;
    redis::cmd("FLUSHDB").exec_async(&mut locks.get_multiplexed_async_connection().await?).await?;

    let mut instances = Instances::start(&args.database, &args.redis, args.instances, !args.no_fence).await?;
    fill(&database, args.stock).await?;
    let progress = Arc::new(Progress::default());
    let begin = Instant::now();
    let customers = (0..48).map(|_| tokio::spawn(buy(instances.addresses(), Arc::clone(&progress), args.orders)));
    let customers: Vec<_> = customers.collect();
    let served = async {
        for customer in customers {
            customer.await??;
        }
        Ok(())
    };
    let ((), troubles) = tokio::try_join!(served, trouble::make(&mut instances, &locks, &progress, args.every, args.orders))?;
    let took = begin.elapsed();
    instances.end().await?;

    let count =
        "SELECT (SELECT count(*) FROM sales), (SELECT count(DISTINCT order_id) FROM sales), (SELECT sum(units)::int8 FROM stock)";
    let row = database.query_one(count, &[]).await?;
    let (sold, orders, left): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
    let stock = i64::try_from(args.stock)?;
    let report = json!({
        "fence": !args.no_fence, "orders": args.orders, "stock": stock, "sold": sold, "left": left,
        "oversold": (sold - stock).max(0), "sold_twice": sold - orders,
        "sold_out_answers": progress.sold_out.load(Ordering::Relaxed), "repeated_requests": progress.repeated.load(Ordering::Relaxed),
        "troubles": troubles, "seconds": took.as_secs_f64(),
    });
    println!("{report:#}");
    let right = sold == stock.min(i64::try_from(args.orders)?) && sold == orders && left == stock - sold;
    if right { Ok(()) } else { Err("what was sold is not what there was".into()) }
}

/// A fifth of the stock is books.
async fn fill(database: &tokio_postgres::Client, stock: u64) -> Result<(), Anything> {
    database.batch_execute("TRUNCATE stock, sales, tenure_once").await?;
    let stock = i32::try_from(stock)?;
    let books = stock / 5;
    let tickets = stock - books;
    let add = "INSERT INTO stock (item, segment, units) VALUES ($1, $2, $3)";
    database.execute(add, &[&"book", &0, &books]).await?;
    for segment in 0..5 {
        let rest = if segment == 0 { tickets % 5 } else { 0 };
        database.execute(add, &[&"ticket", &segment, &(tickets / 5 + rest)]).await?;
    }
    Ok(())
}

/// One customer after the other. Who gets no clear answer asks again, wherever there is somebody: under the same order.
async fn buy(addresses: Vec<String>, progress: Arc<Progress>, orders: u64) -> Result<(), Anything> {
    let http = Client::builder(TokioExecutor::new()).build_http::<Full<axum::body::Bytes>>();
    loop {
        let order = progress.next.fetch_add(1, Ordering::Relaxed);
        if order >= orders {
            return Ok(());
        }
        let body = json!({ "id": format!("order-{order}"), "item": item(order) }).to_string();
        let give_up = Instant::now() + Duration::from_secs(120);
        for attempt in 0_u64.. {
            let to = &addresses[usize::try_from(order + attempt)? % addresses.len()];
            let request = axum::http::Request::post(format!("http://{to}/orders"));
            let request = request.header("content-type", "application/json").body(Full::from(body.clone()))?;
            let asked = async {
                let answer = http.request(request).await?;
                let status = answer.status().as_u16();
                Ok::<_, Anything>((status, answer.into_body().collect().await?.to_bytes()))
            };
            let answer = tokio::time::timeout(Duration::from_secs(5), asked).await;
            match answer {
                Ok(Ok((201, _))) => break,
                Ok(Ok((409, _))) => {
                    progress.sold_out.fetch_add(1, Ordering::Relaxed);
                    break;
                }
                // Refused, cut off, or silent.
                _ if Instant::now() < give_up => {
                    progress.repeated.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                last => return Err(format!("order {order} was not sold for two minutes; the last answer was {last:?}").into()),
            }
        }
        progress.answered.fetch_add(1, Ordering::Relaxed);
    }
}
