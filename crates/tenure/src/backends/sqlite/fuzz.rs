//! What stands in pipes and URLs, made up by a machine. See the module `fuzz`.

use super::message::Message;
use crate::error::Result;
use crate::store::Options;

/// Reads what a URL says of its file, which is not opened.
pub(crate) fn options(rest: &str, mut options: Options) -> Result<()> {
    super::terms::SqliteOptions::read(rest, &mut options)?.terms().map(drop)
}

/// A stream is read as the same messages however it arrives, and what is understood is written as it was read.
pub(crate) fn messages(data: &[u8]) {
    let (cut, stream) = data.split_first().map_or((0, data), |(cut, rest)| (usize::from(*cut), rest));
    let mut whole = stream.to_vec();
    let at_once = take_all(&mut whole);
    let mut buffer = Vec::new();
    let mut in_pieces = Vec::new();
    // A message that is too long ends what has arrived with it, so only streams without one come to the same.
    let nonsense = at_once.iter().any(Option::is_none);
    for piece in stream.chunks(cut.max(1)) {
        buffer.extend_from_slice(piece);
        in_pieces.extend(take_all(&mut buffer));
    }
    if !nonsense {
        assert_eq!(at_once, in_pieces);
        assert_eq!(whole, buffer, "what is left");
    }
    for message in at_once.iter().flatten() {
        let mut written = message.encode();
        assert!(stream.windows(written.len()).any(|window| window == written), "{message:?} is not what was read");
        assert_eq!(take_all(&mut written).iter().flatten().collect::<Vec<_>>(), [message]);
        assert!(written.is_empty());
    }
}

fn take_all(buffer: &mut Vec<u8>) -> Vec<Option<Message>> {
    let mut messages = Vec::new();
    while let Some(message) = Message::take(buffer) {
        messages.push(message);
    }
    messages
}
