//! A certificate authority of the test's own, and a server that speaks only TLS.

use std::path::Path;
use std::process::{Command, Stdio};

use super::RedisServer;

fn openssl(dir: &Path, args: &str) {
    let run = Command::new("openssl").args(args.split(' ')).current_dir(dir).stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(run.expect("openssl runs").success(), "openssl {args}");
}

/// Makes a certificate authority and a server certificate for one host.
pub(crate) fn certificates(dir: &Path, host: &str) {
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(
        dir,
        &format!(
            "req -x509 {key} -days 2 -keyout ca.key -out ca.crt -subj /CN=ca -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign"
        ),
    );
    openssl(dir, &format!("req {key} -keyout server.key -out server.csr -subj /CN=server"));
    let extensions = format!("subjectAltName={host}\nextendedKeyUsage=serverAuth\nbasicConstraints=CA:FALSE\n");
    std::fs::write(dir.join("server.ext"), extensions).expect("written");
    openssl(dir, "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile server.ext -out server.crt");
}

/// A server with the certificates of a directory.
pub(crate) fn tls_server(certificates: &Path) -> RedisServer {
    let file = |name: &str| certificates.join(name).to_string_lossy().into_owned();
    let (crt, key, ca) = (file("server.crt"), file("server.key"), file("ca.crt"));
    let args = [
        "--tls-port",
        "PORT",
        "--tls-cert-file",
        &crt,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &ca,
        "--tls-auth-clients",
        "no",
        "--unixsocket",
        "DIR/socket",
    ];
    RedisServer::with(&args)
}
