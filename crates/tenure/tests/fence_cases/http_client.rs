//! A minimal HTTP/1.1 client: one connection that is kept alive, and headers as bytes.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use tenure_testkit::locker::must;

#[derive(Debug)]
pub(super) struct Client {
    stream: BufReader<TcpStream>,
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

impl Answer {
    pub(super) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("text")
    }

    pub(super) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

impl Client {
    pub(super) async fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("connected");
        Self { stream: BufReader::new(stream) }
    }

    pub(super) async fn send(&mut self, method: &str, path: &str, headers: &[(&str, &[u8])], body: &str) -> Answer {
        let mut request = format!("{method} {path} HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n", body.len()).into_bytes();
        for (name, value) in headers {
            request.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
        }
        request.extend([b"\r\n", body.as_bytes()].concat());
        must("an answer", async {
            self.stream.write_all(&request).await.expect("sent");
            self.answer().await
        })
        .await
    }

    async fn answer(&mut self) -> Answer {
        let status = self.line().await;
        let status =
            status.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("no status: {status:?}"));
        let mut headers = HeaderMap::new();
        loop {
            let line = self.line().await;
            let Some((name, value)) = line.split_once(": ") else { break };
            let name: HeaderName = name.parse().expect("a name");
            headers.insert(name, HeaderValue::from_str(value).expect("a value"));
        }
        let length = headers["content-length"].to_str().expect("text").parse().expect("a number");
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await.expect("a body");
        Answer { status, headers, body }
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).await.expect("a line");
        line.trim_end().to_owned()
    }
}
