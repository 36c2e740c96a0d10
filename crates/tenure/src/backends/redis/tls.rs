//! TLS: always verified, with the system's authorities, one of our own, or by the user's own configuration.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::error::{Error, Result};
use crate::store::Options;

/// The protocol, and which servers to trust.
pub(super) type Config = Arc<ClientConfig>;

/// Whom to trust.
#[derive(Clone)]
pub(super) enum Trust {
    /// The system's authorities, read when a locker connects.
    System,
    Own(Config),
}

impl Trust {
    pub(super) fn config(&self) -> Result<Config> {
        match self {
            Self::System => configure(&mut Options::default()),
            Self::Own(config) => Ok(Arc::clone(config)),
        }
    }
}

/// Reads the authority to trust instead of the system's (`ca`), and the client's certificate (`cert`, `key`).
pub(super) fn configure(options: &mut Options) -> Result<Config> {
    let (ca, cert, key) = (options.take("ca"), options.take("cert"), options.take("key"));
    let roots = match ca {
        Some(file) => authorities(&file)?,
        None => of_the_system()?,
    };
    // Not the process's default provider, which may be another or none: the program's choice is its own.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|e| Error::config("TLS", e.to_string(), "TLS 1.2 or 1.3"))?.with_root_certificates(roots);
    let config = match (cert, key) {
        (Some(cert), Some(key)) => {
            let chain = certificates("cert", &cert)?;
            let private = PrivateKeyDer::from_pem_slice(&pem("key", &key)?).map_err(|e| refused("key", &e))?;
            builder.with_client_auth_cert(chain, private).map_err(|e| refused("key", &e))?
        }
        (None, None) => builder.with_no_client_auth(),
        _ => return Err(Error::config("one of the options \"cert\" and \"key\"", "is of no use alone", "both, or none")),
    };
    Ok(Arc::new(config))
}

/// Speaks TLS over a connection, with the server of that name.
pub(super) async fn over(stream: TcpStream, host: &str, config: &Config) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(host.to_owned());
    let name =
        name.map_err(|_| io::Error::other(format!("TLS needs the name or the address of a server, which {host:?} is not")))?;
    TlsConnector::from(Arc::clone(config)).connect(name, stream).await
}

fn authorities(file: &str) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("ca", file)? {
        roots.add(certificate).map_err(|e| refused("ca", &e))?;
    }
    Ok(roots)
}

fn of_the_system() -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    match (roots.is_empty(), found.errors.first()) {
        (true, error) => {
            let why = error.map_or_else(|| "are none".to_owned(), ToString::to_string);
            Err(Error::config("the system's certificates", why, "an authority of your own (ca=FILE), or those of the system"))
        }
        (false, _) => Ok(roots),
    }
}

fn certificates(option: &str, file: &str) -> Result<Vec<CertificateDer<'static>>> {
    let read: Vec<_> =
        CertificateDer::pem_slice_iter(&pem(option, file)?).collect::<Result<_, _>>().map_err(|e| refused(option, &e))?;
    if read.is_empty() { Err(refused(option, &"has no certificate")) } else { Ok(read) }
}

fn pem(option: &str, file: &str) -> Result<Vec<u8>> {
    std::fs::read(Path::new(file)).map_err(|e| refused(option, &e))
}

/// Without the name of the file: with a question mark in a password, that is a part of it.
fn refused(option: &str, problem: &dyn std::fmt::Display) -> Error {
    Error::config(format!("the file of the option {option:?}"), problem.to_string(), "a PEM file")
}
