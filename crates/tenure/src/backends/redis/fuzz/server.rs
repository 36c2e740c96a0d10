//! A server with given answers.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use crate::backends::redis::dial::{Dial, Server};
use crate::backends::redis::login::Login;
use crate::secret::CANARY;
use crate::store::Credentials;

/// Ends one answer and begins the next. No answer of a server has it where text is expected.
const NEXT: u8 = 0xfe;

/// How long the next question is waited for, before all that is left is said at once.
const SILENCE: Duration = Duration::from_millis(5);

/// Runs all that belongs to one input, and ends it.
pub(super) fn run(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(work);
}

/// A server behind a socket, which gets a password.
pub(super) fn at(path: PathBuf) -> Server {
    dial().socket(path)
}

pub(super) fn dial() -> Dial {
    let login = Login::As(Credentials::new(Some("u"), CANARY));
    Dial { login, database: 0, tls: None }
}

/// Listens at a socket of its own, which is gone with it.
pub(super) struct Socket {
    pub(super) path: PathBuf,
    listener: UnixListener,
}

impl Socket {
    pub(super) fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tenure-fuzz-{}-{number}", std::process::id()));
        let _stale: std::io::Result<()> = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).expect("a socket");
        Self { path, listener }
    }

    /// Answers the first connection: what belongs to its setup as a server does (unless that is made up too), the rest from
    /// the script, and then no more. Later connections are closed at once.
    pub(super) async fn serve(&self, script: &[u8], setup_too: bool) {
        if let Ok((mut stream, _)) = self.listener.accept().await {
            let _ended: std::io::Result<()> = answer(&mut stream, script, setup_too).await;
        }
        loop {
            drop(self.listener.accept().await);
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _gone: std::io::Result<()> = std::fs::remove_file(&self.path);
    }
}

async fn answer(stream: &mut UnixStream, script: &[u8], setup_too: bool) -> std::io::Result<()> {
    let mut answers = script.split(|byte| *byte == NEXT).peekable();
    let mut asked = Vec::new();
    loop {
        let Some(verb) = tokio::time::timeout(SILENCE, question(stream, &mut asked)).await.unwrap_or(Ok(None))? else {
            for answer in answers {
                stream.write_all(answer).await?;
            }
            return Ok(());
        };
        let usual: Option<&[u8]> = match &*verb {
            b"HELLO" => Some(b"%2\r\n+role\r\n+master\r\n+proto\r\n:3\r\n"),
            b"CLIENT" | b"SET" | b"DEL" | b"SELECT" => Some(b"+OK\r\n"),
            _ => None,
        };
        match usual.filter(|_| !setup_too) {
            Some(usual) => stream.write_all(usual).await?,
            None => match answers.next() {
                Some(answer) => stream.write_all(answer).await?,
                None => return Ok(()),
            },
        }
        if answers.peek().is_none() {
            return Ok(());
        }
    }
}

/// The verb of the next whole question: an array of texts, as clients write them. `None` when there will be none.
async fn question(stream: &mut UnixStream, asked: &mut Vec<u8>) -> std::io::Result<Option<Vec<u8>>> {
    loop {
        if let Some((verb, length)) = first_question(asked) {
            asked.drain(..length);
            return Ok(Some(verb));
        }
        if stream.read_buf(asked).await? == 0 {
            return Ok(None);
        }
    }
}

fn first_question(asked: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (parts, mut at) = number(asked, 0, b'*')?;
    let mut verb = None;
    for _ in 0..parts {
        let (length, start) = number(asked, at, b'$')?;
        at = start + length + 2;
        let part = asked.get(start..at)?;
        verb.get_or_insert_with(|| part[..length].to_ascii_uppercase());
    }
    Some((verb?, at))
}

/// A line with a number, and where the next one begins.
fn number(asked: &[u8], at: usize, sign: u8) -> Option<(usize, usize)> {
    let rest = asked.get(at..)?;
    let end = rest.windows(2).position(|end| end == b"\r\n")?;
    let digits = rest[..end].strip_prefix(&[sign])?;
    Some((str::from_utf8(digits).ok()?.parse().ok()?, at + end + 2))
}
