//! Messages on stderr. While a program is supervised, a thread of its own writes them: a blocked stderr (a full
//! pipe, a terminal after Ctrl-S) must not delay what stops the program.

use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};

/// How many words may wait to be read. What comes on top is dropped, and counted.
const WAITING: usize = 256;

/// How long the end of the process waits for a blocked stderr.
const PATIENCE: Duration = Duration::from_secs(1);

static VOICE: OnceLock<Voice> = OnceLock::new();

struct Voice {
    words: SyncSender<Word>,
    dropped: AtomicUsize,
}

enum Word {
    Text(String),
    /// Answered when all that came before is written.
    End(SyncSender<()>),
}

/// From now on no word of this process waits for its reader.
pub(crate) fn never_block() {
    let (words, inbox) = sync_channel(WAITING);
    let started = std::thread::Builder::new().name("tenure-voice".to_owned()).spawn(move || speak(&inbox));
    // Without a thread the words are written as those of other commands are.
    if started.is_ok() {
        drop(VOICE.set(Voice { words, dropped: AtomicUsize::new(0) }));
    }
}

/// Writes to stderr. One that is closed is no reason to stop.
pub(super) fn write(text: String) {
    let Some(voice) = VOICE.get() else { return put(&text) };
    if let Err(TrySendError::Full(_)) = voice.words.try_send(Word::Text(text)) {
        voice.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits until all is written, but not for long.
pub(crate) fn flush() {
    let Some(voice) = VOICE.get() else { return };
    let (done, written) = sync_channel(1);
    if voice.words.try_send(Word::End(done)).is_ok() {
        let _ = written.recv_timeout(PATIENCE);
    }
}

fn speak(inbox: &Receiver<Word>) {
    // From the background a terminal may stop who writes to it, and that would be all of tenure.
    let _ = SigSet::from(Signal::SIGTTOU).thread_block();
    for word in inbox {
        match word {
            Word::Text(text) => put(&text),
            Word::End(done) => drop(done.try_send(())),
        }
        let dropped = VOICE.get().map_or(0, |voice| voice.dropped.swap(0, Ordering::Relaxed));
        if dropped > 0 {
            put(&format!("tenure: {dropped} messages were dropped: stderr was blocked\n"));
        }
    }
}

fn put(text: &str) {
    drop(std::io::stderr().write_all(text.as_bytes()));
}
