//! One address for servers that take turns, as a virtual IP is. When it moves, all connections end.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use crate::actor::lock;
use crate::error::Result;
use crate::password;
use crate::server::Server;

/// Where clients connect to.
pub(crate) trait HasPort {
    fn port(&self) -> u16;
}

impl HasPort for Server {
    fn port(&self) -> u16 {
        self.port()
    }
}

impl<P: HasPort> HasPort for Rc<P> {
    fn port(&self) -> u16 {
        (**self).port()
    }
}

impl HasPort for VirtualAddress {
    fn port(&self) -> u16 {
        self.port
    }
}

#[derive(Debug)]
pub(crate) struct VirtualAddress {
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

impl VirtualAddress {
    pub(crate) fn of(server: &Server) -> Result<Self> {
        Self::leading(Some(server.port()))
    }

    /// Leads nowhere: what is connected is closed at once.
    pub(crate) fn nowhere() -> Result<Self> {
        Self::leading(None)
    }

    fn leading(to: Option<u16>) -> Result<Self> {
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

impl Drop for VirtualAddress {
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
