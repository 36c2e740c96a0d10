//! A user who is not root, and a program that becomes root.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::command::{Running, Store, binary, skipped};

pub const NOBODY: u32 = 65534;

/// Becomes root for good, as sudo does, and stays. It goes to another control group if one is named.
const HELPER: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv) {
    FILE *file;
    if (setresuid(geteuid(), geteuid(), geteuid())) return 9;
    if (argc > 1) {
        file = fopen(argv[1], "w");
        if (!file || fputs("0", file) < 0 || fclose(file)) return 7;
    }
    file = fopen("pid", "w");
    if (!file) return 8;
    fprintf(file, "%d\n", getpid());
    fclose(file);
    close(2);
    for (;;) pause();
}
"#;

/// A store of a user who is not root, beside a program that becomes root. `None` where that cannot be made.
pub fn unprivileged() -> Option<Store> {
    let skip = |why: &str| {
        skipped(why);
        None
    };
    if !rustix::process::geteuid().is_root() {
        return skip("only root can make a program that becomes root");
    }
    let store = Store::new();
    std::fs::write(store.path("helper.c"), HELPER).expect("written");
    let made = Command::new("cc").args(["-o", "helper", "helper.c"]).current_dir(store.path("")).status();
    if !made.is_ok_and(|status| status.success()) {
        return skip("there is no C compiler");
    }
    chown(store.path(""), Some(NOBODY), Some(NOBODY)).expect("we are root");
    std::fs::set_permissions(store.path("helper"), std::fs::Permissions::from_mode(0o4755)).expect("ours");
    if !as_nobody(Path::new("true"), &[]).current_dir(store.path("")).status().is_ok_and(|status| status.success()) {
        return skip("there is no setpriv, or nobody else may be here");
    }
    Some(store)
}

pub fn as_nobody(program: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    let nobody = NOBODY.to_string();
    command.args(["--reuid", &nobody, "--regid", &nobody, "--clear-groups"]).arg(program).args(args);
    command
}

pub fn run(store: &Store, args: &[&str]) -> Running {
    let mut command = as_nobody(&binary(), args);
    command.current_dir(store.path("")).env("TENURE_URL", store.url());
    Running::new(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()))
}

pub fn break_as_nobody(store: &Store) {
    let mut command = as_nobody(&binary(), &["break", "x"]);
    assert!(command.current_dir(store.path("")).env("TENURE_URL", store.url()).output().expect("starts").status.success());
}
