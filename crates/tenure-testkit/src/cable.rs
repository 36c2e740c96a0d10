//! A TCP proxy that a test can cut, make a black hole of, or hold back in one direction, while it is in use.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::eventually;
use tenure_lab::resources::free_port;

/// One thread carries everything on all cables: a test has many of them, and often its own runtime only for a while.
static CARRIER: LazyLock<Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime"));

/// What the near end does with a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    Open,
    /// Refuses, and what was connected is closed.
    Closed,
    /// Does not answer.
    Silent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Request,
    Reply,
}

#[derive(Debug, Clone, Copy)]
struct Order {
    server: u16,
    delay: Duration,
    entry: Entry,
    hold_requests: bool,
    hold_replies: bool,
    /// Connections with a smaller number are dead.
    dead_below: usize,
}

impl Order {
    fn holds(&self, direction: Direction) -> bool {
        match direction {
            Direction::Request => self.hold_requests,
            Direction::Reply => self.hold_replies,
        }
    }
}

/// What has become of the orders.
#[derive(Debug, Default)]
struct Seen {
    entry: std::sync::Mutex<Option<Entry>>,
    connections: AtomicUsize,
    open: AtomicUsize,
    held_requests: AtomicUsize,
    held_replies: AtomicUsize,
}

impl Seen {
    fn held(&self, direction: Direction) -> &AtomicUsize {
        match direction {
            Direction::Request => &self.held_requests,
            Direction::Reply => &self.held_replies,
        }
    }
}

#[derive(Debug)]
pub struct Cable {
    pub port: u16,
    order: watch::Sender<Order>,
    seen: Arc<Seen>,
}

impl Cable {
    pub fn to(server: u16) -> Self {
        Self::slow(server, Duration::ZERO)
    }

    /// One on which everything takes a while to get to the server.
    pub fn slow(server: u16, delay: Duration) -> Self {
        // Not one of those that outgoing connections get: it must be free again after a cut.
        let port = free_port();
        let first = Order { server, delay, entry: Entry::Open, hold_requests: false, hold_replies: false, dead_below: 0 };
        let (order, orders) = watch::channel(first);
        let cable = Self { port, order, seen: Arc::default() };
        CARRIER.spawn(serve(port, orders, Arc::clone(&cable.seen)));
        cable.wait_for(Entry::Open);
        cable
    }

    /// Closes all connections, and refuses new ones.
    pub fn cut(&self) {
        self.order.send_modify(|order| order.entry = Entry::Closed);
        self.wait_for(Entry::Closed);
        eventually("what was connected is closed", || self.seen.open.load(Ordering::SeqCst) == 0);
        eventually("nobody can connect", || std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err());
    }

    /// Nothing arrives any more in either direction, not even a wish to connect. What was sent arrives after all when this
    /// is [healed](Self::heal), as TCP sends it until then again and again.
    pub fn blackhole(&self) {
        self.order.send_modify(|order| {
            (order.entry, order.hold_requests, order.hold_replies) = (Entry::Silent, true, true);
        });
        self.wait_for(Entry::Silent);
    }

    /// Holds back what the server says. It hears everything.
    pub fn hold_replies(&self) {
        self.order.send_modify(|order| order.hold_replies = true);
    }

    /// Holds back what the server is told.
    pub fn hold_requests(&self) {
        self.order.send_modify(|order| order.hold_requests = true);
    }

    /// Whether the server has said something that is held back.
    pub fn has_held_reply(&self) -> bool {
        self.seen.held_replies.load(Ordering::SeqCst) > 0
    }

    pub fn has_held_request(&self) -> bool {
        self.seen.held_requests.load(Ordering::SeqCst) > 0
    }

    /// Undoes a cut and a blackhole, and delivers what was held back.
    pub fn heal(&self) {
        self.order.send_modify(|order| {
            (order.entry, order.hold_requests, order.hold_replies) = (Entry::Open, false, false);
        });
        self.wait_for(Entry::Open);
    }

    /// What is connected now stays so and hears nothing any more, ever. New connections are as good as before.
    pub fn strand(&self) {
        let connections = self.seen.connections.load(Ordering::SeqCst);
        self.order.send_modify(|order| order.dead_below = connections);
    }

    /// From now on nothing takes a while any more.
    pub fn hasten(&self) {
        self.order.send_modify(|order| order.delay = Duration::ZERO);
    }

    /// Leads to another server from now on, as an address that is moved does.
    pub fn lead_to(&self, server: u16) {
        self.order.send_modify(|order| order.server = server);
    }

    fn wait_for(&self, entry: Entry) {
        eventually("the cable does as it is told", || *self.seen.entry.lock().expect("not poisoned") == Some(entry));
    }
}

/// Ends with the cable, as do its connections.
async fn serve(port: u16, mut orders: watch::Receiver<Order>, seen: Arc<Seen>) {
    loop {
        let entry = orders.borrow_and_update().entry;
        let listener = match entry {
            Entry::Open => Some(listen(port, 1024).await),
            Entry::Closed => None,
            Entry::Silent => Some(listen(port, 0).await),
        };
        let _queued = if entry == Entry::Silent { fill(port).await } else { Vec::new() };
        *seen.entry.lock().expect("not poisoned") = Some(entry);
        let accepting = async {
            loop {
                match &listener {
                    Some(listener) if entry == Entry::Open => {
                        let (near, _) = listener.accept().await.expect("accepted");
                        tokio::spawn(connection(near, orders.clone(), Arc::clone(&seen)));
                    }
                    _ => std::future::pending().await,
                }
            }
        };
        let mut changes = orders.clone();
        tokio::select! {
            changed = changes.wait_for(|order| order.entry != entry) => if changed.is_err() { return },
            () = accepting => {}
        }
    }
}

async fn listen(port: u16, backlog: u32) -> TcpListener {
    let try_listen = || {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(([127, 0, 0, 1], port).into())?;
        socket.listen(backlog)
    };
    loop {
        match try_listen() {
            Ok(listener) => return listener,
            // What was closed here may be open for a moment more in a process that is just being started.
            Err(error) if error.kind() == ErrorKind::AddrInUse => tokio::time::sleep(Duration::from_millis(1)).await,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Without an accept, and with a full backlog, the kernel ignores new connections.
async fn fill(port: u16) -> Vec<TcpStream> {
    let mut queued = Vec::new();
    while let Ok(connected) = tokio::time::timeout(Duration::from_millis(100), TcpStream::connect(("127.0.0.1", port))).await {
        queued.push(connected.expect("connected"));
    }
    queued
}

async fn connection(mut near: TcpStream, mut orders: watch::Receiver<Order>, seen: Arc<Seen>) {
    struct Open(Arc<Seen>);
    impl Drop for Open {
        fn drop(&mut self) {
            self.0.open.fetch_sub(1, Ordering::SeqCst);
        }
    }
    seen.open.fetch_add(1, Ordering::SeqCst);
    let open = Open(seen);
    let number = open.0.connections.fetch_add(1, Ordering::SeqCst);
    let server = orders.borrow().server;
    let Ok(mut far) = TcpStream::connect(("127.0.0.1", server)).await else { return };
    for stream in [&near, &far] {
        let _already_closed = stream.set_nodelay(true);
    }
    {
        let ((near_read, near_write), (far_read, far_write)) = (near.split(), far.split());
        let way = |direction| Way { direction, number, orders: orders.clone(), seen: Arc::clone(&open.0) };
        let (requests, replies) = (way(Direction::Request), way(Direction::Reply));
        let both = async { tokio::join!(requests.carry(near_read, far_write), replies.carry(far_read, near_write)) };
        tokio::select! {
            _ = both => {}
            _ = orders.wait_for(|order| order.entry == Entry::Closed) => {}
        }
    }
    // Closed first, and then no longer counted.
    drop((near, far));
    drop(open);
}

struct Way {
    direction: Direction,
    number: usize,
    orders: watch::Receiver<Order>,
    seen: Arc<Seen>,
}

impl Way {
    async fn carry(mut self, mut from: impl AsyncReadExt + Unpin, mut to: impl AsyncWriteExt + Unpin) {
        let direction = self.direction;
        let mut buffer = [0; 4096];
        while let Ok(n @ 1..) = from.read(&mut buffer).await {
            let delay = self.orders.borrow().delay;
            if direction == Direction::Request && !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            self.seen.held(direction).fetch_add(n, Ordering::SeqCst);
            let order = self.orders.wait_for(|order| !order.holds(direction)).await.map(|order| *order);
            self.seen.held(direction).fetch_sub(n, Ordering::SeqCst);
            let Ok(order) = order else { return };
            if self.number >= order.dead_below && to.write_all(&buffer[..n]).await.is_err() {
                break;
            }
        }
        // Who is at the other end hears that this one has gone, as over a real wire.
        if self.orders.wait_for(|order| !order.holds(direction)).await.is_ok() {
            let _already = to.shutdown().await;
        }
    }
}
