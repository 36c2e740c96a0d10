//! A password is in no error, no `Debug` and no log, however badly it is written into a URL; and it can be in a file.

#[path = "stores/toy.rs"]
mod toy;

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use tenure::{Error, Locker, secret};
use tenure_testkit::log::Log;

/// All that can be printed of an error, and of what is under it.
fn with_sources(error: &(dyn std::error::Error + 'static)) -> String {
    std::iter::successors(Some(error), |error| error.source()).map(|error| format!("{error} {error:?} {error:#?} ")).collect()
}

/// What is said of a URL: its error or its locker, and the log.
fn said(url: &str) -> String {
    tenure::connect::register(&toy::SCHEME).expect("a store of another crate");
    let log = Log::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_env_filter("trace").with_ansi(false).with_writer(move || writer.clone()).finish();
    let opened = tracing::subscriber::with_default(subscriber, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let builder = Locker::builder().timeout(Duration::from_millis(100)).runtime(runtime.handle().clone());
        runtime.block_on(builder.connect(url))
    });
    let said = match opened {
        Ok(locker) => format!("{locker:?}"),
        Err(error) => with_sources(&error),
    };
    format!("{said}\n{}", log.text())
}

/// The pieces of a password that nobody writes by accident: four characters, two of them letters or digits of ours.
fn pieces(password: &str) -> impl Iterator<Item = String> {
    let chars: Vec<char> = password.chars().collect();
    let windows: Vec<String> = chars.windows(4).map(|window| window.iter().collect()).collect();
    windows.into_iter().filter(|piece: &String| {
        !piece.contains(|c: char| c.is_ascii_lowercase()) && piece.chars().filter(char::is_ascii_alphanumeric).count() >= 2
    })
}

/// URLs with a password in them that is not encoded.
fn urls(password: &str) -> Vec<String> {
    vec![
        format!("redis://u:{password}@127.0.0.1:1"),
        format!("redis://:{password}@127.0.0.1:1/0?lease=3s"),
        format!("redis+sentinel://u:{password}@127.0.0.1:1,127.0.0.1:2/mymaster"),
        format!("redis+sentinel://127.0.0.1:1/mymaster?sentinel_pass={password}&lease=3s"),
        format!("redis+cluster://u:{password}@127.0.0.1:1"),
        format!("redis+unix:///nowhere?pass={password}&user=u"),
        format!("sqlite://u:{password}@127.0.0.1/x"),
        format!("sqlite:redis://u:{password}@127.0.0.1:1"),
        format!("toy://u:{password}@host:1/x"),
        format!("toy:u:{password}@host/x?holder=hide&lease=3s"),
        format!("quorum:toy://u:{password}@a|toy://b|toy://c?holder=hide"),
        format!("quorum:redis://u:{password}@127.0.0.1:1|redis://127.0.0.1:2|redis://127.0.0.1:3"),
        format!("quorum:redis://127.0.0.1:1|redis://127.0.0.1:2|redis://u:{password}@127.0.0.1:3?lease=3s"),
    ]
}

fn is_not_said(password: &str) {
    for url in urls(password) {
        let said = said(&url);
        for piece in pieces(password) {
            assert!(!said.contains(&piece), "{piece} of {url}: {said}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn no_piece_of_a_password_is_in_an_error_a_debug_or_a_log(
        password in "[QXZJKVW3478?&=@/|#:%,;+. \\[\\]-]{4,24}|[34789]{4,5}[?/|&#][QXZJKVW]{4,8}|[QXZJKVW]{4,8}[?/|&@][QXZJKVW]{4,8}=[QXZJKVW]{4,8}",
    ) {
        is_not_said(&password);
    }

    #[test]
    fn a_password_that_looks_like_options_is_not_said_either(
        head in "[QXZJKVW]{0,6}|[34789]{4,5}",
        between in "[?&/|@]",
        option in "(lease|timeout|prefix|layout|semaphore|token_ttl|wake|sync|sync_timeout|ca|cert|key|db|user|pass_file|node_timeout|quarantine|redis://|sqlite:/|memory:)",
        tail in "=?[QXZJKVW3478]{4,12}[smdh]?",
    ) {
        is_not_said(&format!("{head}{between}{option}{tail}"));
    }
}

#[test]
fn the_beginning_of_a_password_is_not_taken_for_a_port() {
    for password in [
        "4947?prefix=QXZJ",
        "4947?lease=3s",
        "4947?timeout=1s&prefix=Q",
        "4947?node_timeout=Q",
        "4947|memory:?prefix=Q",
        "Q@JKVW?==Q",
    ] {
        is_not_said(password);
    }
}

/// Servers that do not know a command repeat what came with it, each in its own words.
#[test]
fn a_password_that_a_server_repeats_is_not_said() {
    for words in [
        "unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `u`, `QXZJ`",
        "unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'u' 'QXZJ' ",
    ] {
        let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = server.local_addr().expect("bound").port();
        std::thread::spawn(move || {
            for mut client in server.incoming().flatten() {
                drop(client.write_all(format!("-ERR {words}\r\n").repeat(8).as_bytes()));
                drop(std::io::copy(&mut client, &mut std::io::sink()));
            }
        });
        for url in [format!("redis://u:QXZJ@127.0.0.1:{port}"), format!("redis+cluster://u:QXZJ@127.0.0.1:{port}")] {
            let said = said(&url);
            assert!(said.contains("HELLO") && !said.contains("QXZJ"), "{url}: {said}");
        }
    }
}

#[test]
fn what_is_wrong_with_an_option_is_said_without_its_value() {
    for (url, words) in [
        ("redis://h?laese=3s", &["first option", "unknown", "lease"][..]),
        ("redis://h?lease=3s&laese=3s", &["second option", "unknown"]),
        ("redis://h?lease=30", &["\"lease\"", "without a unit", "1.5s"]),
        ("redis://h?lease=1ns", &["\"lease\"", "out of range", "10ms to 24h"]),
        ("redis://h?layout=QXZJ", &["\"layout\"", "redisson, plain"]),
        ("redis://h?sync=QXZJ", &["\"sync\"", "number"]),
        ("redis://h?token_ttl=77m", &["\"token_ttl\"", "24h or more"]),
        ("redis://h?prefix=a@QXZJ", &["%40"]),
        ("redis://u:a/QXZJ@h", &["%2F"]),
        ("QXZJ://h", &["scheme", "unknown", "redis:"]),
        ("quorum:redis://a|redis://b|redis://c?quarantin=off", &["unknown", "quarantine"]),
    ] {
        let said = said(url);
        assert!(words.iter().all(|word| said.contains(word)), "{url}: {said}");
        assert!(!["QXZJ", "laese", "77m", "1ns"].iter().any(|value| said.contains(value)), "{url}: {said}");
    }
}

fn write(path: &Path, text: &str, mode: u32) {
    std::fs::write(path, text).expect("written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("ours");
}

#[test]
fn a_secret_is_all_of_its_file_but_one_line_end() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("secret");
    for (text, read) in [("abc", "abc"), ("abc\n", "abc"), ("abc\r\n", "abc"), ("abc\n\n", "abc\n"), (" a ", " a ")] {
        write(&file, text, 0o600);
        let secret = secret::read(&file).expect("readable");
        assert_eq!(secret.text(), read);
        assert!(!secret.is_exposed() && !format!("{secret:?}").contains("abc"));
    }
    write(&file, "abc", 0o640);
    assert!(!secret::read(&file).expect("shared with a group on purpose").is_exposed());
    write(&file, "abc", 0o644);
    assert!(secret::read(&file).expect("readable").is_exposed());
    for (text, mode, why) in [("", 0o600, "empty"), ("\n", 0o600, "empty"), ("abc", 0o620, "written"), ("abc", 0o602, "written")]
    {
        write(&file, text, mode);
        let error = secret::read(&file).expect_err("refused").to_string();
        assert!(error.contains(why) && !error.contains("abc"), "{error}");
    }
    write(&file, &"a".repeat(70_000), 0o600);
    assert!(secret::read(&file).expect_err("refused").to_string().contains("longer than"));
    assert!(matches!(secret::read(&dir.path().join("none")), Err(Error::Config { .. })));
    assert!(secret::read(dir.path()).is_err(), "a directory");
}
