//! PostgreSQL.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use tokio_postgres::{Client, NoTls};

use crate::Signal;
use crate::database::{self, Kind, find, fresh_name, wait_for};

struct Postgres;

static PORT: LazyLock<u16> = LazyLock::new(database::start::<Postgres>);

/// Where a program of the server is: on the path, or where Debian puts the newest.
pub fn program(name: &str) -> Option<PathBuf> {
    let version = |dir: PathBuf| Some((dir.file_name()?.to_str()?.parse::<u32>().ok()?, dir));
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let newest = versions.filter_map(|entry| version(entry.ok()?.path())).max();
    find(name, &newest.map(|(_, dir)| dir.join("bin")).unwrap_or_default())
}

impl Kind for Postgres {
    const NAME: &str = "PostgreSQL";
    // Its immediate shutdown, which also ends its children and gives back shared memory.
    const FAREWELL: Signal = Signal::QUIT;

    fn prepare(dir: &Path) -> Command {
        let mut command = Command::new(program("initdb").expect("installed"));
        command.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync", "--wal-segsize=1"]);
        command.arg("-D").arg(dir.join("data"));
        command
    }

    fn start(dir: &Path, port: u16) -> Command {
        let mut command = Command::new(program("postgres").expect("installed"));
        command.arg("-D").arg(dir.join("data")).args(["-p", &port.to_string()]);
        let sockets = format!("unix_socket_directories={}", dir.display());
        let settings = ["listen_addresses=127.0.0.1", "fsync=off", "shared_buffers=16MB", "max_connections=200", &sockets];
        command.args(settings.iter().flat_map(|setting| ["-c", setting]));
        command
    }

    fn answers(port: u16) -> bool {
        wait_for(async { tokio_postgres::connect(&url(port, "postgres"), NoTls).await.is_ok() })
    }
}

fn url(port: u16, database: &str) -> String {
    format!("postgres://postgres@127.0.0.1:{port}/{database}?connect_timeout=5")
}

/// The URL of a new database.
pub fn database() -> String {
    let name = fresh_name();
    wait_for(async {
        let client = connect(&url(*PORT, "postgres")).await;
        client.batch_execute(&format!("CREATE DATABASE {name}")).await.expect("a database");
    });
    url(*PORT, &name)
}

pub async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("connected");
    tokio::spawn(connection);
    client
}
