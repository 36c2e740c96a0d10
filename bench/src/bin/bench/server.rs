//! What the server says of itself: commands and CPU.

use redis::cmd;
use tenure_testkit::RedisServer;

/// Counters of a server, or what they grew by.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Info {
    /// All commands, those that scripts call among them.
    pub(crate) commands: f64,
    /// Those that clients have sent.
    pub(crate) sent: f64,
    pub(crate) cpu_us: f64,
    pub(crate) memory: f64,
}

/// Commands that no script of any contender calls.
const SENT: &[&str] = &["eval", "fcall", "subscribe", "ssubscribe", "unsubscribe", "sunsubscribe", "psubscribe", "punsubscribe"];
const SENT_TOO: &[&str] = &["client", "hello", "ping", "script", "wait", "delex", "delifeq", "auth", "select"];

impl Info {
    /// Reads it from several servers as one.
    pub(crate) fn of(servers: &[RedisServer], sends_set: bool) -> Self {
        servers.iter().map(|server| Self::read(server, sends_set)).fold(Self::default(), |a, b| a.and(&b))
    }

    fn read(server: &RedisServer, sends_set: bool) -> Self {
        let text: String = cmd("INFO").arg("everything").query(&mut server.raw()).expect("the server answers");
        let mut info = Self::default();
        for line in text.lines() {
            if let Some((name, rest)) = line.strip_prefix("cmdstat_").and_then(|line| line.split_once(":calls=")) {
                let calls: f64 = rest.split(',').next().and_then(|n| n.parse().ok()).unwrap_or(0.0);
                info.count(name, calls, sends_set);
            } else if let Some((name, value)) = line.split_once(':') {
                let value: f64 = value.trim().parse().unwrap_or(0.0);
                match name {
                    "used_cpu_sys" | "used_cpu_user" => info.cpu_us += value * 1e6,
                    "used_memory" => info.memory = value,
                    _ => {}
                }
            }
        }
        info
    }

    fn count(&mut self, name: &str, calls: f64, sends_set: bool) {
        // This question, and its connection.
        if name == "info" || name.starts_with("client|setinfo") {
            return;
        }
        self.commands += calls;
        let verb = name.split('|').next().unwrap_or(name);
        let is_script = verb.starts_with("eval") || verb.starts_with("fcall");
        if is_script || SENT.contains(&verb) || SENT_TOO.contains(&verb) || (sends_set && verb == "set") {
            self.sent += calls;
        }
    }

    fn and(self, other: &Self) -> Self {
        Self {
            commands: self.commands + other.commands,
            sent: self.sent + other.sent,
            cpu_us: self.cpu_us + other.cpu_us,
            memory: self.memory + other.memory,
        }
    }

    pub(crate) fn since(self, before: &Self) -> Self {
        Self {
            commands: self.commands - before.commands,
            sent: self.sent - before.sent,
            cpu_us: self.cpu_us - before.cpu_us,
            memory: self.memory - before.memory,
        }
    }
}
