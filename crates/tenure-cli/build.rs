//! Tells the command which commit it was built from, where that can be known.

use std::path::Path;
use std::process::Command;

fn main() {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8(output.stdout).ok()?.trim().to_owned()).filter(|text| !text.is_empty())
    };
    // Only in a clone of this repository: the sources of a package may lie in somebody else's.
    let is_clone = Path::new("../../.git").exists();
    let commit = is_clone.then(|| git(&["rev-parse", "--short=12", "HEAD"])).flatten();
    let commit = commit.map(|commit| format!(" ({commit})")).unwrap_or_default();
    println!("cargo:rustc-env=TENURE_COMMIT={commit}");
    println!("cargo:rerun-if-changed=build.rs");
    if let Some(head) = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|_| is_clone) {
        println!("cargo:rerun-if-changed={head}");
    }
}
