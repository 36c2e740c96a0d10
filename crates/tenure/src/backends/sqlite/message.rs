//! What clients leave in each other's pipes.

use crate::name::ClientId;

/// Below PIPE_BUF, so that messages do not mix.
const MAX_BYTES: usize = 1024;

/// What one client tells another.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// The name is free, and you are next.
    Free(String),
    /// You are next after this holder of the name: watch it.
    Held(ClientId, String),
}

impl Message {
    /// Two bytes of length, then a letter and the text.
    pub(super) fn encode(&self) -> Vec<u8> {
        let body = match self {
            Self::Free(name) => format!("f{name}"),
            Self::Held(client, name) => format!("h{client}/{name}"),
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
        if let Some(name) = body.strip_prefix('f') {
            return Some(Self::Free(name.to_owned()));
        }
        let (client, name) = body.strip_prefix('h')?.split_once('/')?;
        Some(Self::Held(client.parse().ok()?, name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_being_cut_anywhere_and_nonsense_is_skipped() {
        let client = ClientId::random().unwrap();
        let (free, held) = (Message::Free("a\0ü%_".into()), Message::Held(client, "b/c".into()));
        let stream = [free.encode(), held.encode()].concat();
        for cut in 0..stream.len() {
            let mut buffer = stream[..cut].to_vec();
            let mut got: Vec<_> = std::iter::from_fn(|| Message::take(&mut buffer)).collect();
            buffer.extend(&stream[cut..]);
            got.extend(std::iter::from_fn(|| Message::take(&mut buffer)));
            assert_eq!(got.iter().flatten().collect::<Vec<_>>(), [&free, &held], "cut at {cut}");
        }
        assert_eq!(Message::take(&mut vec![1, 0, b'x']), Some(None));
        assert_eq!(Message::take(&mut vec![0xff, 0xff, 1]), Some(None));
        assert_eq!(Message::take(&mut vec![2, 0, b'f', 0xff]), Some(None));
        assert_eq!(Message::take(&mut vec![5, 0, b'f']), None);
    }
}
