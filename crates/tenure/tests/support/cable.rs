//! A way to a server that a test can cut: what is connected over it stays so and hears nothing any more.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;

pub(crate) struct Cable {
    pub(crate) port: u16,
    server: Arc<AtomicU16>,
    /// Connections with a smaller number are dead.
    dead_below: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
}

impl Cable {
    pub(crate) fn to(server: u16) -> Self {
        Self::slow(server, Duration::ZERO)
    }

    /// One on which everything takes a while to get to the server.
    pub(crate) fn slow(server: u16, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let (dead_below, connections) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let server = Arc::new(AtomicU16::new(server));
        let cable = Self {
            port,
            server: Arc::clone(&server),
            dead_below: Arc::clone(&dead_below),
            connections: Arc::clone(&connections),
        };
        std::thread::spawn(move || {
            while let Ok((near, _)) = listener.accept() {
                let number = connections.fetch_add(1, Ordering::SeqCst);
                let Ok(far) = TcpStream::connect(("127.0.0.1", server.load(Ordering::SeqCst))) else { continue };
                let ways = [(near.try_clone(), far.try_clone(), delay), (Ok(far), Ok(near), Duration::ZERO)];
                for (from, to, delay) in ways {
                    let (mut from, mut to) = (from.expect("cloned"), to.expect("cloned"));
                    let dead_below = Arc::clone(&dead_below);
                    std::thread::spawn(move || {
                        let mut buffer = [0; 4096];
                        while let Ok(n) = from.read(&mut buffer) {
                            std::thread::sleep(delay);
                            let dead = number < dead_below.load(Ordering::SeqCst);
                            if n == 0 || !dead && to.write_all(&buffer[..n]).is_err() {
                                break;
                            }
                        }
                        // Who is at the other end hears that this one has gone, as over a real wire.
                        let _already = to.shutdown(std::net::Shutdown::Write);
                    });
                }
            }
        });
        cable
    }

    /// What is connected now hears nothing any more.
    pub(crate) fn cut(&self) {
        self.dead_below.store(self.connections.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// Leads to another server from now on, as an address that is moved does.
    pub(crate) fn lead_to(&self, server: u16) {
        self.server.store(server, Ordering::SeqCst);
    }
}
