//! The users that the documentation advises.

use redis::{Connection, cmd};

use crate::server::compares_and_deletes;

/// The password of every such user.
pub const PASSWORD: &str = "s3cr3t-canary";

/// Makes a user exactly as a line of `docs/redis.md` says.
pub fn documented_user(name: &str, raw: &mut Connection) {
    documented_tenant(name, name, "app:", raw);
}

/// Makes the user of another tenant: the line of the page with another name, and another prefix instead of `app:`.
pub fn documented_tenant(line: &str, name: &str, prefix: &str, raw: &mut Connection) {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/redis.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let start = format!("ACL SETUSER {line} ");
    let line = page.lines().find_map(|text| text.strip_prefix(&start)).unwrap_or_else(|| panic!("no line for {line}"));
    let line = line.replace("PASSWORD", PASSWORD).replace("app:", prefix);
    let mut set = cmd("ACL");
    set.arg("SETUSER").arg(name).arg(line.split(' ').collect::<Vec<_>>());
    set.query::<()>(raw).expect("a user");
}

/// Takes the right to call scripts from a user, and gives it the commands that do as well. False, and said so, where the server has none.
pub fn without_scripts(user: &str, raw: &mut Connection) -> bool {
    let mut set = cmd("ACL");
    set.arg("SETUSER").arg(user).arg("-eval").arg("-evalsha");
    let delete = compares_and_deletes(raw);
    set.arg(delete.map(|delete| format!("+{delete}")));
    set.query::<()>(raw).expect("a user");
    delete.is_some()
}
