//! Where the URL of the store comes from, and which processes see it.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use tenure_testkit::command::{Store, text};

/// `tenure` without a word of where the store is.
fn bare<const N: usize>(store: &Store, args: [&str; N]) -> Command {
    let mut command = store.tenure(args);
    command.env_remove("TENURE_URL");
    command
}

fn write(store: &Store, file: &str, content: &str, mode: u32) -> String {
    let path = store.path(file);
    std::fs::write(&path, content).expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("ours");
    path.display().to_string()
}

const SHOW: &str = "echo \"${TENURE_URL-none} ${TENURE_URL_FILE-none} ${TENURE_TERM-none}\"";

#[test]
fn the_program_finds_neither_the_url_nor_the_term_of_another() {
    let store = Store::new();
    let run = store.tenure(["run", "x", "--", "sh", "-c", SHOW]).env("TENURE_TERM", "7").output().expect("starts");
    assert_eq!(text(&run.stdout), "none none none\n", "{run:?}");

    let file = write(&store, "url", &store.url(), 0o600);
    let run = bare(&store, ["run", "x", "--", "sh", "-c", SHOW]).env("TENURE_URL_FILE", &file).output().expect("starts");
    assert_eq!(text(&run.stdout), "none none none\n", "{run:?}");

    let run = store.tenure(["elect", "x", "--", "sh", "-c", SHOW]).env("TENURE_TERM", "7").output().expect("starts");
    let shown = text(&run.stdout);
    assert!(shown.starts_with("none none ") && !shown.ends_with(" 7\n") && !shown.ends_with("none\n"), "{run:?}");
}

#[test]
fn a_program_that_runs_tenure_itself_can_be_given_the_url() {
    let store = Store::new();
    for command in ["run", "elect"] {
        let run = store.output([command, "--pass-url", "x", "--", "sh", "-c", SHOW]);
        assert!(text(&run.stdout).starts_with(&format!("{} none ", store.url())), "{run:?}");
    }
}

#[test]
fn the_url_can_stand_in_a_file() {
    let store = Store::new();
    let holder = store.start(["run", "x", "--", "sh", "-c", "echo > ready; exec sleep 1000"]);
    store.written("ready");
    let file = write(&store, "url", &format!("{}\n", store.url()), 0o600);
    let busy = |command: &mut Command| {
        let output = command.output().expect("starts");
        assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(75), ""), "{output:?}");
        text(&output.stderr)
    };
    busy(&mut bare(&store, ["--url-file", &file, "run", "-n", "x", "--", "true"]));
    busy(bare(&store, ["run", "-n", "x", "--", "true"]).env("TENURE_URL_FILE", &file));
    // The command line wins.
    busy(bare(&store, ["run", "-n", "x", "--url-file", &file, "--", "true"]).env("TENURE_URL", "memory:"));
    // A service of systemd.
    let dir = store.path("");
    write(&store, "tenure.url", &store.url(), 0o440);
    let said = busy(bare(&store, ["run", "-n", "x", "--", "true"]).env("CREDENTIALS_DIRECTORY", &dir));
    assert!(!said.contains("may read"), "{said}");
    write(&store, "url", &store.url(), 0o644);
    let said = busy(&mut bare(&store, ["--url-file", &file, "run", "-n", "x", "--", "true"]));
    assert!(said.contains("every user may read") && said.contains("chmod"), "{said}");
    drop(holder);
}

#[test]
fn a_file_that_is_no_secret_or_no_url_is_refused() {
    let store = Store::new();
    let secret = "redis://u:canary@127.0.0.1:1";
    for (content, mode, why) in [
        (secret, 0o666, "written to by others"),
        (secret, 0o660, "written to by others"),
        ("", 0o600, "empty"),
        ("redis://u:canary@127.0.0.1:1\nmore", 0o600, "more than one line"),
        ("canary", 0o600, "has no scheme"),
    ] {
        let file = write(&store, "url", content, mode);
        let output = bare(&store, ["--url-file", &file, "ls"]).output().expect("starts");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(why) && !said.contains("canary"), "{said}");
    }
    let file = store.path("none").display().to_string();
    assert_eq!(bare(&store, ["--url-file", &file, "ls"]).output().expect("starts").status.code(), Some(2));
    let both = store.tenure(["ls"]).env("TENURE_URL_FILE", &file).output().expect("starts");
    assert!(both.status.code() == Some(2) && text(&both.stderr).contains("both set"), "{both:?}");
    let both = store.output(["--url", "memory:", "--url-file", &file, "ls"]);
    assert_eq!(both.status.code(), Some(2), "{both:?}");
}

#[test]
fn a_url_that_is_taken_for_a_file_is_not_shown() {
    let store = Store::new();
    for url in ["redis://u:canary@127.0.0.1:1", "quorum:redis://u:canary@a|redis://b|redis://c"] {
        for command in [&mut bare(&store, ["--url-file", url, "ls"]), bare(&store, ["ls"]).env("TENURE_URL_FILE", url)] {
            let output = command.output().expect("starts");
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(said.contains("--url") && !said.contains("canary"), "{said}");
        }
    }
}

#[test]
fn a_credential_that_cannot_be_read_is_not_passed_over() {
    let store = Store::new();
    // One that root cannot read either.
    std::os::unix::fs::symlink("tenure.url", store.path("tenure.url")).expect("a link");
    let run = bare(&store, ["run", "x", "--", "true"]).env("CREDENTIALS_DIRECTORY", store.path("")).output().expect("starts");
    assert_eq!(run.status.code(), Some(2), "{run:?}");
    assert!(text(&run.stderr).contains("tenure.url"), "{run:?}");
}
