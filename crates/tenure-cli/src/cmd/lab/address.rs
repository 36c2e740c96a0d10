//! One address for servers that take turns, as a virtual IP is: who is connected when it moves has to connect again.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use super::actor::lock;
use super::password;
use super::server::Server;
use super::upset::Played;

/// Where clients connect to.
pub(crate) trait Place {
    fn port(&self) -> u16;
}

impl Place for Server {
    fn port(&self) -> u16 {
        self.port()
    }
}

impl<P: Place> Place for Rc<P> {
    fn port(&self) -> u16 {
        (**self).port()
    }
}

impl Place for Address {
    fn port(&self) -> u16 {
        self.port
    }
}

#[derive(Debug)]
pub(crate) struct Address {
    port: u16,
    leads: Arc<Mutex<Leads>>,
}

#[derive(Debug)]
struct Leads {
    /// The port of a server, if there is one.
    to: Option<u16>,
    connections: Vec<TcpStream>,
    given_up: bool,
}

impl Address {
    pub(crate) fn of(server: &Server) -> Played<Self> {
        Self::leading(Some(server.port()))
    }

    /// Leads nowhere: what is connected is closed at once.
    pub(crate) fn nowhere() -> Played<Self> {
        Self::leading(None)
    }

    fn leading(to: Option<u16>) -> Played<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let port = listener.local_addr()?.port();
        let leads = Arc::new(Mutex::new(Leads { to, connections: Vec::new(), given_up: false }));
        let shared = Arc::clone(&leads);
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let mut leads = lock(&shared);
                if leads.given_up {
                    return;
                }
                // Who cannot be let through sees its connection end.
                drop(leads.let_through(near));
            }
        });
        Ok(Self { port, leads })
    }

    /// For Tenure, with options such as `sync=1`.
    pub(crate) fn url(&self, options: &str) -> String {
        password::url(self.port, options)
    }

    /// Leads to another server from now on.
    pub(crate) fn move_to(&self, server: &Server) {
        lock(&self.leads).move_to(Some(server.port()));
    }
}

impl Drop for Address {
    fn drop(&mut self) {
        let mut leads = lock(&self.leads);
        leads.move_to(None);
        leads.given_up = true;
        drop(leads);
        // So that the one who listens looks up.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

impl Leads {
    fn move_to(&mut self, to: Option<u16>) {
        self.to = to;
        for connection in self.connections.drain(..) {
            drop(connection.shutdown(Shutdown::Both));
        }
    }

    fn let_through(&mut self, near: TcpStream) -> std::io::Result<()> {
        let Some(to) = self.to else { return Ok(()) };
        let far = TcpStream::connect(("127.0.0.1", to))?;
        for (from, to) in [(&near, &far), (&far, &near)] {
            from.set_nodelay(true)?;
            let (mut from, mut to) = (from.try_clone()?, to.try_clone()?);
            std::thread::spawn(move || {
                drop(std::io::copy(&mut from, &mut to));
                drop(from.shutdown(Shutdown::Both));
                drop(to.shutdown(Shutdown::Both));
            });
        }
        self.connections.extend([near, far]);
        Ok(())
    }
}
