//! An instance of the shop. It finds `DATABASE_URL`, `TENURE_URL` and `LISTEN` in its environment.
//!
//! ```sh
//! curl -d '{"id":"order-1","item":"book"}' -H 'Content-Type: application/json' http://127.0.0.1:3000/orders
//! ```

mod shop;

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use shop::{Order, Refused, Shop};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let setting = |name: &str| std::env::var(name).map_err(|_| format!("{name} is not set"));
    let shop = Arc::new(Shop::open(&setting("DATABASE_URL")?, &setting("TENURE_URL")?).await?);
    let app = Router::new().route("/orders", post(order)).route("/stock/{item}", get(stock)).with_state(Arc::clone(&shop));
    let listener = tokio::net::TcpListener::bind(setting("LISTEN")?).await?;
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, app).with_graceful_shutdown(interrupted()).await?;
    // Locks that are still held would be missed by others until their leases end.
    Ok(shop.close().await?)
}

async fn order(State(shop): State<Arc<Shop>>, Json(order): Json<Order>) -> (StatusCode, Json<Value>) {
    match shop.sell(&order).await {
        Ok(receipt) => (StatusCode::CREATED, Json(json!(receipt))),
        Err(Refused::SoldOut) => (StatusCode::CONFLICT, Json(json!({ "error": "sold out" }))),
        // Nothing was sold, or the answer is not known: the same order may be sent again, and is sold once.
        Err(Refused::TryAgain(why)) => (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "error": why }))),
    }
}

async fn stock(State(shop): State<Arc<Shop>>, Path(item): Path<String>) -> (StatusCode, Json<Value>) {
    match shop.stock(&item).await {
        Ok(units) => (StatusCode::OK, Json(json!({ "item": item, "units": units }))),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "error": why.to_string() }))),
    }
}

async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminated) = signal(SignalKind::terminate()) else { return std::future::pending().await };
    tokio::select! {
        _ = terminated.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}
