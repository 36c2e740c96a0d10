//! `tenure fence ddl`, run by the databases' own clients.

use std::io::Write;
use std::process::{Command, Stdio};

use tenure::Token;
use tenure::fence::sql::{Effect, FenceTable, Update};
use tenure::fence::sqlite;
use tenure::once::{self, OnceTable};
use tenure_testkit::command::{Store, text};
use tenure_testkit::{Needs, Test, mariadb, postgres};

type Case = fn();

const CASES: [(Needs, &str, Case); 7] = [
    (Needs::Nothing, "the_table_of_marks_is_printed_under_its_usual_name", the_table_of_marks_is_printed_under_its_usual_name),
    (Needs::Nothing, "a_name_that_is_more_than_a_name_is_wrong_usage", a_name_that_is_more_than_a_name_is_wrong_usage),
    (Needs::Nothing, "sqlite_takes_what_is_printed", sqlite_takes_what_is_printed),
    (Needs::Postgres, "psql_takes_what_is_printed", psql_takes_what_is_printed),
    (Needs::Mariadb, "the_client_of_mariadb_takes_what_is_printed", the_client_of_mariadb_takes_what_is_printed),
    (Needs::Postgres, "nothing_in_a_name_is_run_by_psql", nothing_in_a_name_is_run_by_psql),
    (Needs::Mariadb, "nothing_in_a_name_is_run_by_the_client_of_mariadb", nothing_in_a_name_is_run_by_the_client_of_mariadb),
];

fn main() {
    tenure_testkit::run(CASES.into_iter().map(|(needs, name, case)| Test::new(name, needs, case)).collect())
}

/// What is printed, which must be without complaints.
fn ddl(args: &[&str]) -> String {
    let output = Store::new().tenure(["fence", "ddl"]).args(args).output().expect("tenure starts");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    text(&output.stdout)
}

/// Lets a client read a script, and returns what it says.
fn run(command: &mut Command, script: &str) -> String {
    let mut client = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a client");
    client.stdin.take().expect("piped").write_all(script.as_bytes()).expect("written");
    let output = client.wait_with_output().expect("ended");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?} after {script}");
    text(&output.stdout)
}

/// The same script for all: the tables are there, and twice is once.
fn try_out(dialect: &str, quoted: &str, mut client: impl FnMut() -> Command) {
    run(&mut client(), "CREATE TABLE stock (id int); INSERT INTO stock VALUES (1);");
    let usual = ddl(&["--dialect", dialect]);
    run(&mut client(), &usual);
    run(&mut client(), &usual);
    run(&mut client(), &ddl(&["--dialect", dialect, "--table", quoted]));
    let (fence, lease) = (format!("{quoted}.fence"), format!("stock.{quoted}"));
    let columns = ["--dialect", dialect, "--column", "stock.fence", "--column", &fence, "--lease", &lease];
    run(&mut client(), &ddl(&columns));
    let fill = format!("INSERT INTO {quoted} (resource, token) VALUES ('R', 7); UPDATE stock SET fence = 5, {quoted} = 6;");
    run(&mut client(), &fill);
    let sum = format!(
        "SELECT fence * 10 + {quoted} FROM stock; SELECT token * 10 + fence FROM {quoted}; SELECT count(*) FROM tenure_fences;"
    );
    assert_eq!(run(&mut client(), &sum).split_whitespace().collect::<Vec<_>>(), ["56", "70", "0"]);
    let in_quotes = quoted.replace("order", "once.order");
    for once in [&["--dialect", dialect, "--once"][..], &["--once", &in_quotes, "--dialect", dialect]].map(ddl) {
        run(&mut client(), &once);
        run(&mut client(), &once);
    }
    let count = format!("SELECT count(*) FROM tenure_once WHERE expires_at > 0; SELECT count(*) FROM {in_quotes};");
    assert_eq!(run(&mut client(), &count).split_whitespace().collect::<Vec<_>>(), ["0", "0"]);
}

fn psql(url: &str) -> Command {
    let mut client = Command::new(postgres::program("psql").expect("it comes with the server"));
    client.args(["-qAt", "-d", url]).env("PGOPTIONS", "-c client_min_messages=warning");
    client
}

fn mysql(url: &str) -> Command {
    let opts = mysql_async::Opts::from_url(url).expect("a URL");
    let mut client = Command::new("mariadb");
    client.args(["--no-defaults", "-uroot", "-N", "-h127.0.0.1", &format!("-P{}", opts.tcp_port())]);
    client.arg(opts.db_name().expect("a database"));
    client
}

fn psql_takes_what_is_printed() {
    let url = postgres::database();
    try_out("postgres", "\"order\"", || {
        let mut client = psql(&url);
        client.args(["-v", "ON_ERROR_STOP=1"]);
        client
    });
}

fn the_client_of_mariadb_takes_what_is_printed() {
    let url = mariadb::database();
    try_out("mysql", "`order`", || mysql(&url));
}

/// Names that end the statement where they stand, if they are taken for more than names.
const ATTACKS: [&str; 8] = [
    "`x; DROP TABLE stock; --`",
    "`x; DROP TABLE stock; -- `",
    "\"x; DROP TABLE stock; --\"",
    "\"x\"\" (id int); DROP TABLE stock; --\"",
    "`x`` (id int); DROP TABLE stock; -- `",
    "\"`x (id int); DROP TABLE stock; -- \"",
    "`\"x (id int); DROP TABLE stock; --`",
    "`x\\` (id int); DROP TABLE stock; -- `",
];

/// Runs all that is printed for names that are attacks, by a client that goes on after errors: the table is still there.
fn attack(dialect: &str, client: impl Fn() -> Command) {
    run(&mut client(), "CREATE TABLE stock (id int); INSERT INTO stock VALUES (7);");
    for attack in ATTACKS {
        let column = format!("stock.{attack}");
        for args in [["--table", attack], ["--once", attack], ["--column", &column], ["--lease", &column]] {
            let output = Store::new().tenure(["fence", "ddl", "--dialect", dialect]).args(args).output().expect("tenure starts");
            let script = text(&output.stdout);
            assert_eq!(output.status.success(), !script.is_empty(), "{output:?}");
            let mut client =
                client().stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a client");
            client.stdin.take().expect("piped").write_all(script.as_bytes()).expect("written");
            client.wait().expect("ended");
        }
        assert_eq!(run(&mut client(), "SELECT id FROM stock;").trim(), "7", "{attack}");
    }
}

fn nothing_in_a_name_is_run_by_psql() {
    let url = postgres::database();
    attack("postgres", || psql(&url));
}

fn nothing_in_a_name_is_run_by_the_client_of_mariadb() {
    let url = mariadb::database();
    attack("mysql", || {
        let mut client = mysql(&url);
        client.arg("--force");
        client
    });
}

fn sqlite_takes_what_is_printed() {
    let mut conn = rusqlite::Connection::open_in_memory().expect("opened");
    conn.execute_batch("CREATE TABLE stock (id INTEGER PRIMARY KEY); INSERT INTO stock VALUES (1)").expect("a table");
    let args = ["--dialect", "sqlite", "--table", "\"order\"", "--column", "main.stock.fence", "--lease", "stock.version"];
    conn.execute_batch(&ddl(&args)).expect("defined");
    let token = Token::new(7);
    let tx = conn.transaction().expect("begun");
    sqlite::pass(&tx, &FenceTable::named("\"order\"").expect("a name"), "R", &token).expect("passed");
    let update = Update::of("stock").key("id = ?", [1]).fenced("fence", &token).lease("version", 0);
    assert_eq!(sqlite::update(&tx, &update).expect("passed"), Effect::Written);
    for name in ["tenure_once", "main.done", "main.\"a.b\""] {
        tx.execute_batch(&ddl(&["--dialect", "sqlite", "--once", name]).repeat(2)).expect("defined");
        let table = OnceTable::named(name).expect("a name");
        let claimed = once::sqlite::claim::<u32>(&tx, &table.claim("k").expect("a key")).expect("claimed");
        assert!(matches!(claimed, once::Claimed::Yours(_)), "{claimed:?}");
    }
}

fn the_table_of_marks_is_printed_under_its_usual_name() {
    let [usual, named] = [&["--dialect", "postgres"][..], &["--dialect", "postgres", "--table", "tenure_fences"]].map(ddl);
    assert_eq!(usual, named);
    assert!(usual.contains("CREATE TABLE IF NOT EXISTS \"tenure_fences\" ("), "{usual}");
    let column = ddl(&["--dialect", "sqlite", "--column", "stock.fence"]);
    assert!(!column.contains("CREATE TABLE"), "only what was asked for: {column}");
    let once = ddl(&["--dialect", "sqlite", "--once"]);
    assert!(once.contains("CREATE TABLE IF NOT EXISTS `tenure_once` (") && !once.contains("tenure_fences"), "{once}");
}

fn a_name_that_is_more_than_a_name_is_wrong_usage() {
    for (args, words) in [
        (["--dialect=mysql", "--table=a; DROP TABLE b"], "cannot stand in a statement"),
        (["--dialect=mariadb", "--column=fence"], "names no column of a table"),
        (["--dialect=postgresql", "--lease=stock.fence;--"], "names no column of a table"),
        (["--dialect=mysql", "--once=a; DROP TABLE b"], "cannot stand in a statement"),
        (["--dialect=oracle", "--table=a"], "[possible values: postgres, mysql, sqlite]"),
    ] {
        let output = Store::new().tenure(["fence", "ddl"]).args(args).output().expect("tenure starts");
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && output.stdout.is_empty(), "{args:?}: {output:?}");
        assert!(said.contains(words), "{args:?}: {said}");
    }
}
