//! A certificate authority of the test's own, and servers that speak only TLS.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::RedisServer;
use crate::server::{Setup, start};

const KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

fn openssl(dir: &Path, args: &str) {
    let run = Command::new("openssl").args(args.split(' ')).current_dir(dir).stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(run.expect("openssl runs").success(), "openssl {args}");
}

/// Makes a certificate authority, a server certificate for one host and a client certificate.
pub fn certificates(dir: &Path, host: &str) {
    openssl(
        dir,
        &format!(
            "req -x509 {KEY} -days 2 -keyout ca.key -out ca.crt -subj /CN=ca -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign"
        ),
    );
    // Servers are also clients: of a master, of each other.
    sign(dir, "server", &format!("subjectAltName={host}\nextendedKeyUsage=serverAuth,clientAuth\n"));
    sign(dir, "client", "extendedKeyUsage=clientAuth\n");
}

fn sign(dir: &Path, name: &str, extensions: &str) {
    openssl(dir, &format!("req {KEY} -keyout {name}.key -out {name}.csr -subj /CN={name}"));
    std::fs::write(dir.join(format!("{name}.ext")), format!("{extensions}basicConstraints=CA:FALSE\n")).expect("written");
    let files = format!("-in {name}.csr -extfile {name}.ext -out {name}.crt");
    openssl(dir, &format!("x509 -req -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 {files}"));
}

/// A server with the certificates of a directory.
pub fn tls_server(certificates: &Path) -> RedisServer {
    start(&Setup::default().tls(certificates))
}

/// A server that also wants a certificate of its clients.
pub fn mutual_tls_server(certificates: &Path) -> RedisServer {
    start(&Setup::default().mutual_tls(certificates))
}
