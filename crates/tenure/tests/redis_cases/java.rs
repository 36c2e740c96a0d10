//! A peer that does what Redisson does, command by command: its fields, lists, deadlines and messages. What it answers is what its
//! callers see: `None` is granted, a number is the time to wait.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::{Connection, FromRedisValue, cmd};

use tenure_testkit::RedisServer;

pub(crate) const A: &str = "11111111-1111-1111-1111-111111111111:1";
pub(crate) const B: &str = "22222222-2222-2222-2222-222222222222:7";
pub(crate) const C: &str = "33333333-3333-3333-3333-333333333333:9";

pub(crate) const LOCK_CHANNEL: &str = "redisson_lock__channel:{L}";
pub(crate) const RW_CHANNEL: &str = "redisson_rwlock:{L}";
pub(crate) const PERMITS_CHANNEL: &str = "redisson_sc:{L}";
pub(crate) const LATCH_CHANNEL: &str = "redisson_countdownlatch__channel__{L}";

pub(crate) const QUEUE: &str = "redisson_lock_queue:{L}";
pub(crate) const DEADLINES: &str = "redisson_lock_timeout:{L}";
pub(crate) const HELD: &str = "{L}:timeout";

/// Milliseconds since 1970, by the client's clock.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_millis()).expect("in range")
}

/// The key of a reader's n-th hold.
pub(crate) fn share(reader: &str, n: i64) -> String {
    format!("{{L}}:{reader}:rwlock_timeout:{n}")
}

/// A connection on which commands are words.
pub(crate) struct Java(Connection);

impl Java {
    pub(crate) fn at(server: &RedisServer) -> Self {
        Self(server.raw())
    }

    #[track_caller]
    pub(crate) fn ask<T: FromRedisValue>(&mut self, words: &[&str]) -> T {
        let mut command = cmd(words[0]);
        command.arg(&words[1..]).query(&mut self.0).unwrap_or_else(|e| panic!("{words:?}: {e}"))
    }

    #[track_caller]
    pub(crate) fn run(&mut self, words: &[&str]) {
        self.ask::<redis::Value>(words);
    }

    /// Commands that nothing comes between, as those of a script.
    #[track_caller]
    fn together(&mut self, commands: &[&[&str]]) {
        let mut pipe = redis::pipe();
        pipe.atomic();
        for words in commands {
            pipe.cmd(words[0]).arg(&words[1..]).ignore();
        }
        pipe.query::<()>(&mut self.0).unwrap_or_else(|e| panic!("{commands:?}: {e}"));
    }

    pub(crate) fn exists(&mut self, key: &str) -> bool {
        self.ask(&["EXISTS", key])
    }

    pub(crate) fn pttl(&mut self, key: &str) -> i64 {
        self.ask(&["PTTL", key])
    }

    pub(crate) fn get(&mut self, key: &str) -> Option<String> {
        self.ask(&["GET", key])
    }

    /// The fields of the lock, in order.
    pub(crate) fn fields(&mut self) -> Vec<(String, String)> {
        let mut fields: Vec<(String, String)> = self.ask(&["HGETALL", "L"]);
        fields.sort();
        fields
    }

    pub(crate) fn queue(&mut self) -> Vec<String> {
        self.ask(&["LRANGE", QUEUE, "0", "-1"])
    }

    pub(crate) fn deadline(&mut self, owner: &str) -> Option<i64> {
        self.ask::<Option<f64>>(&["ZSCORE", DEADLINES, owner]).map(|score| score as i64)
    }

    /// All keys that Redisson knows, in order: those of ours alone it never sees.
    pub(crate) fn keys(&mut self) -> Vec<String> {
        let mut keys: Vec<String> = self.ask(&["KEYS", "*"]);
        keys.retain(|key| !key.starts_with("tenure_"));
        keys.sort();
        keys
    }

    /// How many scripts have been run so far.
    pub(crate) fn scripts(&mut self) -> u64 {
        let info: String = self.ask(&["INFO", "commandstats"]);
        let calls = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        calls.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
    }

    fn publish(&mut self, channel: &str, message: &str) {
        self.run(&["PUBLISH", channel, message]);
    }

    /// A plain lock.
    pub(crate) fn lock(&mut self, owner: &str, lease: i64) -> Option<i64> {
        if self.exists("L") && !self.ask::<bool>(&["HEXISTS", "L", owner]) {
            return Some(self.pttl("L"));
        }
        self.together(&[&["HINCRBY", "L", owner, "1"], &["PEXPIRE", "L", &lease.to_string()]]);
        None
    }

    fn evict(&mut self) {
        while let Some(head) = self.ask::<Option<String>>(&["LINDEX", QUEUE, "0"]) {
            if self.deadline(&head).is_none_or(|deadline| deadline > now()) {
                return;
            }
            self.together(&[&["ZREM", DEADLINES, &head], &["LPOP", QUEUE]]);
        }
    }

    /// A fair lock of one who waits.
    pub(crate) fn fair_lock(&mut self, owner: &str, lease: i64, wait: i64) -> Option<i64> {
        self.evict();
        let head: Option<String> = self.ask(&["LINDEX", QUEUE, "0"]);
        if !self.exists("L") && head.is_none_or(|head| head == owner) {
            let mut others: Vec<String> = self.ask(&["ZRANGE", DEADLINES, "0", "-1"]);
            others.retain(|other| other != owner);
            let (wait, lease) = ((-wait).to_string(), lease.to_string());
            let mut commands: Vec<Vec<&str>> = vec![vec!["LPOP", QUEUE], vec!["ZREM", DEADLINES, owner]];
            commands.extend(others.iter().map(|other| vec!["ZINCRBY", DEADLINES, &wait, other]));
            commands.extend([vec!["HSET", "L", owner, "1"], vec!["PEXPIRE", "L", &lease]]);
            self.together(&commands.iter().map(Vec::as_slice).collect::<Vec<_>>());
            return None;
        }
        if self.ask(&["HEXISTS", "L", owner]) {
            return self.lock(owner, lease);
        }
        if self.deadline(owner).is_some() {
            return Some(self.pttl("L").max(0));
        }
        let last: Option<String> = self.ask(&["LINDEX", QUEUE, "-1"]);
        let before = last.filter(|last| last != owner).and_then(|last| self.deadline(&last));
        let base = before.map_or_else(|| self.pttl("L"), |before| before - now());
        let deadline = (base + wait + now()).to_string();
        self.together(&[&["ZADD", DEADLINES, &deadline, owner], &["RPUSH", QUEUE, owner]]);
        Some(base)
    }

    /// Leaves the queue; `wait` is what it takes off the deadlines of those behind.
    pub(crate) fn fair_give_up(&mut self, owner: &str, wait: i64) {
        let (queue, wait) = (self.queue(), (-wait).to_string());
        let behind = queue.iter().skip_while(|other| *other != owner).skip(1);
        let mut commands: Vec<Vec<&str>> = behind.map(|other| vec!["ZINCRBY", DEADLINES, &wait, other]).collect();
        commands.extend([vec!["ZREM", DEADLINES, owner], vec!["LREM", QUEUE, "0", owner]]);
        self.together(&commands.iter().map(Vec::as_slice).collect::<Vec<_>>());
    }

    pub(crate) fn fair_unlock(&mut self, owner: &str) -> Option<i64> {
        self.evict();
        if self.exists("L") && !self.ask::<bool>(&["HEXISTS", "L", owner]) {
            return None;
        }
        // In one step, as a script is: whoever is woken otherwise than by this must not be gone before it is told.
        let delete: &[&str] = &["DEL", "L"];
        match self.ask::<Option<String>>(&["LINDEX", QUEUE, "0"]) {
            Some(head) => self.together(&[delete, &["PUBLISH", &format!("{LOCK_CHANNEL}:{head}"), "0"]]),
            None => self.together(&[delete]),
        }
        Some(1)
    }

    fn mode(&mut self) -> Option<String> {
        self.ask(&["HGET", "L", "mode"])
    }

    pub(crate) fn read(&mut self, owner: &str, lease: i64) -> Option<i64> {
        let mode = self.mode();
        let writes: bool = self.ask(&["HEXISTS", "L", &format!("{owner}:write")]);
        if mode.as_deref() == Some("write") && !writes {
            return Some(self.pttl("L"));
        }
        let held = self.ask::<Option<i64>>(&["HGET", "L", owner]).unwrap_or(0) + 1;
        let n = held.to_string();
        let longest = lease.max(self.pttl("L")).to_string();
        let mode = mode.as_deref().unwrap_or("read");
        self.together(&[
            &["HSET", "L", "mode", mode, owner, &n],
            &["SET", &share(owner, held), "1", "PX", &lease.to_string()],
            &["PEXPIRE", "L", &longest],
        ]);
        None
    }

    pub(crate) fn unread(&mut self, owner: &str) -> Option<i64> {
        if self.mode().is_none() {
            self.publish(RW_CHANNEL, "0");
            return None;
        }
        if !self.ask::<bool>(&["HEXISTS", "L", owner]) {
            return None;
        }
        let left: i64 = self.ask(&["HINCRBY", "L", owner, "-1"]);
        if left == 0 {
            self.run(&["HDEL", "L", owner]);
        }
        self.run(&["DEL", &share(owner, left + 1)]);
        let mut most = -3;
        for (field, count) in self.fields() {
            for n in 1..=count.parse().unwrap_or(0) {
                most = most.max(self.pttl(&share(&field, n)));
            }
        }
        if most > 0 {
            self.run(&["PEXPIRE", "L", &most.to_string()]);
            return Some(0);
        }
        if self.fields().len() > 1 && self.mode().as_deref() == Some("write") {
            return Some(0);
        }
        self.run(&["DEL", "L"]);
        self.publish(RW_CHANNEL, "0");
        Some(1)
    }

    pub(crate) fn write(&mut self, owner: &str, lease: i64) -> Option<i64> {
        let field = format!("{owner}:write");
        let again: bool = self.ask(&["HEXISTS", "L", &field]);
        let left = self.pttl("L");
        if self.mode().is_some() && !again {
            return Some(left);
        }
        let lease = if again { lease + left } else { lease }.to_string();
        self.together(&[&["HSET", "L", "mode", "write"], &["HINCRBY", "L", &field, "1"], &["PEXPIRE", "L", &lease]]);
        None
    }

    pub(crate) fn unwrite(&mut self, owner: &str) -> Option<i64> {
        let field = format!("{owner}:write");
        match self.mode().as_deref() {
            None => {
                self.publish(RW_CHANNEL, "1");
                return None;
            }
            Some("write") if self.ask(&["HEXISTS", "L", &field]) => {}
            Some(_) => return None,
        }
        self.run(&["HDEL", "L", &field]);
        if self.ask::<i64>(&["HLEN", "L"]) == 1 {
            self.run(&["DEL", "L"]);
            self.publish(RW_CHANNEL, "1");
        } else {
            // Without a word to those who wait.
            self.run(&["HSET", "L", "mode", "read"]);
        }
        Some(1)
    }

    /// Sets a number, of a semaphore or of a latch, where there is none.
    pub(crate) fn try_set(&mut self, channel: &str, number: i64, message: &str) -> bool {
        let set = self.ask::<bool>(&["SETNX", "L", &number.to_string()]);
        if set {
            self.publish(channel, message);
        }
        set
    }

    /// Adds to the permits: what is left of the number's time to live is lost.
    pub(crate) fn add_permits(&mut self, more: i64) {
        let number = self.get("L").map_or(0, |n| n.parse::<i64>().expect("a number")) + more;
        self.run(&["SET", "L", &number.to_string()]);
        self.publish(PERMITS_CHANNEL, &number.to_string());
    }

    /// Takes a permit under an id of 16 bytes.
    pub(crate) fn take_permit(&mut self, id: [u8; 16], until: i64) {
        self.run(&["DECRBY", "L", "1"]);
        cmd("ZADD").arg(HELD).arg(until).arg(&id).query::<()>(&mut self.0).expect("added");
    }

    /// The ids of permits that are held, with their ends.
    pub(crate) fn held(&mut self) -> Vec<(Vec<u8>, i64)> {
        let held: Vec<(Vec<u8>, f64)> = self.ask(&["ZRANGE", HELD, "0", "-1", "WITHSCORES"]);
        held.into_iter().map(|(id, until)| (id, until as i64)).collect()
    }
}

/// Hears all that is published on channels of Redisson's.
pub(crate) struct Ear {
    listener: Connection,
    speaker: Connection,
}

impl Ear {
    pub(crate) fn at(server: &RedisServer) -> Self {
        let mut listener = server.raw();
        cmd("PSUBSCRIBE").arg("redisson_*").query::<redis::Value>(&mut listener).expect("subscribed");
        listener.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
        Self { listener, speaker: server.raw() }
    }

    /// What was published since the last time, up to now.
    pub(crate) fn heard(&mut self) -> Vec<(String, String)> {
        cmd("PUBLISH").arg("redisson_end").arg("").query::<u32>(&mut self.speaker).expect("published");
        let mut heard = Vec::new();
        loop {
            let message = self.listener.recv_response().expect("a message");
            let (_, _, channel, text): (String, String, String, String) = redis::from_redis_value(message).expect("a message");
            if channel == "redisson_end" {
                return heard;
            }
            heard.push((channel, text));
        }
    }
}

/// A message as [`Ear::heard`] tells it.
pub(crate) fn message(channel: &str, text: &str) -> (String, String) {
    (channel.to_owned(), text.to_owned())
}
