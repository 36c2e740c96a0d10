//! The users that the documentation advises.

use redis::{Connection, cmd};

/// The password of every such user.
pub(crate) const PASSWORD: &str = "s3cr3t-canary";

/// Makes a user exactly as a line of `docs/redis.md` says.
pub(crate) fn documented_user(name: &str, raw: &mut Connection) {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/redis.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let start = format!("ACL SETUSER {name} ");
    let line = page.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("no line for {name}"));
    let line = line.replace("PASSWORD", PASSWORD);
    let mut words = line.split(' ');
    let mut set = cmd(words.next().expect("a command"));
    set.arg(words.collect::<Vec<_>>());
    set.query::<()>(raw).expect("a user");
}
