//! MariaDB.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use mysql_async::Conn;
use mysql_async::prelude::Queryable;

use crate::Signal;
use crate::database::{self, Kind, find, fresh_name, wait_for};

struct Mariadb;

static PORT: LazyLock<u16> = LazyLock::new(database::start::<Mariadb>);

impl Kind for Mariadb {
    const NAME: &str = "MariaDB";
    const FAREWELL: Signal = Signal::KILL;

    fn prepare(dir: &Path) -> Command {
        let mut command = Command::new("mariadb-install-db");
        command.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]);
        command.arg("--innodb-log-file-size=4M").arg(format!("--datadir={}", dir.join("data").display()));
        command
    }

    fn start(dir: &Path, port: u16) -> Command {
        let mut command = Command::new(program().expect("installed"));
        let inside = |option: &str, name: &str| format!("--{option}={}", dir.join(name).display());
        command.args(["--no-defaults", &inside("datadir", "data"), &inside("socket", "socket"), &inside("pid-file", "pid")]);
        command.args(["--bind-address=127.0.0.1", &format!("--port={port}"), "--skip-name-resolve", "--max-connections=200"]);
        command.args(["--innodb-buffer-pool-size=16M", "--innodb-log-file-size=4M", "--innodb-flush-log-at-trx-commit=0"]);
        command
    }

    fn answers(port: u16) -> bool {
        wait_for(async { Conn::from_url(url(port, "mysql")).await.is_ok() })
    }
}

/// Where the server is: on the path, or where only root's path leads.
pub fn program() -> Option<PathBuf> {
    find("mariadbd", Path::new("/usr/sbin"))
}

fn url(port: u16, database: &str) -> String {
    // Not over the socket, which the driver would change to by itself.
    format!("mysql://root@127.0.0.1:{port}/{database}?prefer_socket=false")
}

/// The URL of a new database.
pub fn database() -> String {
    let name = fresh_name();
    wait_for(async {
        connect(&url(*PORT, "mysql"))
            .await
            .query_drop(format!("CREATE DATABASE {name} CHARACTER SET utf8mb4"))
            .await
            .expect("a database");
    });
    url(*PORT, &name)
}

pub async fn connect(url: &str) -> Conn {
    Conn::from_url(url).await.expect("connected")
}
