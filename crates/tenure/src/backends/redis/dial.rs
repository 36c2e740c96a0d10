//! How the servers of one deployment are dialled: all but the address.

use std::fmt;

use redis::io::tcp::TcpSettings;
use redis::{ClientTlsConfig, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo, TlsCertificates};

use super::slots::Address;
use super::url::{Url, refuse};
use crate::connect::Options;
use crate::error::{Error, Result};

/// Who we are to a server, and how it is reached. Clones share nothing secret but memory.
#[derive(Clone)]
pub(super) struct Dial {
    settings: RedisConnectionInfo,
    tls: Option<TlsCertificates>,
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dial").field("tls", &self.tls.is_some()).finish_non_exhaustive()
    }
}

impl Dial {
    /// Reads the login of a URL, and the TLS options where the scheme begins with `rediss`.
    pub(super) fn new(scheme: &str, url: &Url, options: &mut Options) -> Result<Self> {
        let settings = login(RedisConnectionInfo::default(), url.user.as_deref(), url.pass.as_deref());
        let tls = scheme.starts_with("rediss").then(|| certificates(options)).transpose()?;
        if tls.is_some() {
            // Another provider may have been chosen by the program; any of them verifies.
            drop(rustls::crypto::ring::default_provider().install_default());
        }
        Ok(Self { settings, tls })
    }

    /// The same for another login.
    pub(super) fn login(&self, user: Option<&str>, pass: Option<&str>) -> Self {
        Self { settings: login(RedisConnectionInfo::default(), user, pass), tls: self.tls.clone() }
    }

    /// The same for another database.
    pub(super) fn db(mut self, scheme: &str, db: Option<&str>) -> Result<Self> {
        // Not shown: with a slash in a password, the path is a part of that.
        let number = db.map(|db| db.parse().map_err(|_| refuse(scheme, "has a database that is no number"))).transpose()?;
        if let Some(number) = number {
            self.settings = self.settings.set_db(number);
        }
        Ok(self)
    }

    /// A client of a server. Does not connect yet.
    pub(super) fn client(&self, (host, port): &Address) -> Result<redis::Client> {
        let (host, port) = (host.clone(), *port);
        self.open(match self.tls {
            Some(_) => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
            None => ConnectionAddr::Tcp(host, port),
        })
    }

    pub(super) fn open(&self, address: ConnectionAddr) -> Result<redis::Client> {
        let refused = |e: redis::RedisError| Error::config("the certificates", e.to_string(), "PEM files");
        let info = address.into_connection_info().map_err(refused)?.set_redis_settings(self.settings.clone());
        // A lock is one small packet each way: nothing to gain by collecting them.
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        match &self.tls {
            Some(tls) => redis::Client::build_with_tls(info, tls.clone()).map_err(refused),
            None => redis::Client::open(info).map_err(refused),
        }
    }
}

fn login(mut settings: RedisConnectionInfo, user: Option<&str>, pass: Option<&str>) -> RedisConnectionInfo {
    settings = settings.set_protocol(ProtocolVersion::RESP3).set_lib_name("tenure", env!("CARGO_PKG_VERSION"));
    if let Some(user) = user {
        settings = settings.set_username(user);
    }
    if let Some(pass) = pass {
        settings = settings.set_password(pass);
    }
    settings
}

/// Own authority instead of the system's (`ca`), and who we are to the server (`cert`, `key`).
fn certificates(options: &mut Options) -> Result<TlsCertificates> {
    let mut pem = |option: &str| match options.take(option) {
        None => Ok(None),
        Some(file) => match std::fs::read(&file) {
            Ok(pem) => Ok(Some(pem)),
            Err(e) => Err(Error::config(format!("the file {file:?} of the option {option:?}"), e.to_string(), "a PEM file")),
        },
    };
    let root_cert = pem("ca")?;
    let client_tls = match (pem("cert")?, pem("key")?) {
        (Some(client_cert), Some(client_key)) => Some(ClientTlsConfig { client_cert, client_key }),
        (None, None) => None,
        _ => return Err(Error::config("one of the options \"cert\" and \"key\"", "is of no use alone", "both, or none")),
    };
    Ok(TlsCertificates { client_tls, root_cert })
}
