//! The messages that clients write into each other's pipes.

use crate::name::{ClientId, OwnerId};

/// Below PIPE_BUF, so that messages do not mix.
const MAX_BYTES: usize = 1024;

/// What one client tells another.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// The waiters at this key of the hub are next.
    Free(String),
    /// The waiters at this key are next after this holder: watch it alone.
    Held(ClientId, String),
    /// The same, and go on watching others.
    HeldToo(ClientId, String),
    /// The hold of this owner was taken away by force.
    Lost(OwnerId),
    /// Another client waits for the hold of this owner, which may linger.
    Wanted(OwnerId),
}

impl Message {
    /// Two bytes of length, then a letter and the text.
    pub(super) fn encode(&self) -> Vec<u8> {
        let body = match self {
            Self::Free(key) => format!("f{key}"),
            Self::Held(client, key) => format!("h{client}/{key}"),
            Self::HeldToo(client, key) => format!("t{client}/{key}"),
            Self::Lost(owner) => format!("l{owner}"),
            Self::Wanted(owner) => format!("w{owner}"),
        };
        let length = u16::try_from(body.len()).unwrap_or(u16::MAX);
        [&length.to_le_bytes(), body.as_bytes()].concat()
    }

    /// Takes the first whole message off the buffer; the inner `None` is one that makes no sense.
    pub(super) fn take(buffer: &mut Vec<u8>) -> Option<Option<Self>> {
        let (length, rest) = buffer.split_first_chunk::<2>()?;
        let length = usize::from(u16::from_le_bytes(*length));
        if length > MAX_BYTES {
            buffer.clear();
            return Some(None);
        }
        let message = Self::decode(rest.get(..length)?);
        buffer.drain(..2 + length);
        Some(message)
    }

    fn decode(body: &[u8]) -> Option<Self> {
        let body = std::str::from_utf8(body).ok()?;
        if let Some(key) = body.strip_prefix('f') {
            return Some(Self::Free(key.to_owned()));
        }
        if let Some(owner) = body.strip_prefix('l') {
            return Some(Self::Lost(owner.parse().ok()?));
        }
        if let Some(owner) = body.strip_prefix('w') {
            return Some(Self::Wanted(owner.parse().ok()?));
        }
        let (is_one_of_many, rest) = match body.strip_prefix('t') {
            Some(rest) => (true, rest),
            None => (false, body.strip_prefix('h')?),
        };
        let (client, key) = rest.split_once('/')?;
        let (client, key) = (client.parse().ok()?, key.to_owned());
        Some(if is_one_of_many { Self::HeldToo(client, key) } else { Self::Held(client, key) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_being_cut_anywhere_and_nonsense_is_skipped() {
        let client = ClientId::random().unwrap();
        let (free, held) = (Message::Free("a\0ü%_".into()), Message::Held(client, "b/c".into()));
        let too = Message::HeldToo(client, "c\0d".into());
        let lost = Message::Lost(OwnerId { client, number: 7 });
        let wanted = Message::Wanted(OwnerId { client, number: 8 });
        let stream = [free.encode(), held.encode(), too.encode(), lost.encode(), wanted.encode()].concat();
        for cut in 0..stream.len() {
            let mut buffer = stream[..cut].to_vec();
            let mut got: Vec<_> = std::iter::from_fn(|| Message::take(&mut buffer)).collect();
            buffer.extend(&stream[cut..]);
            got.extend(std::iter::from_fn(|| Message::take(&mut buffer)));
            assert_eq!(got.iter().flatten().collect::<Vec<_>>(), [&free, &held, &too, &lost, &wanted], "cut at {cut}");
        }
        assert_eq!(Message::take(&mut vec![1, 0, b'x']), Some(None));
        assert_eq!(Message::take(&mut vec![0xff, 0xff, 1]), Some(None));
        assert_eq!(Message::take(&mut vec![2, 0, b'f', 0xff]), Some(None));
        assert_eq!(Message::take(&mut vec![2, 0, b'l', b'7']), Some(None));
        assert_eq!(Message::take(&mut vec![5, 0, b'f']), None);
    }
}
