//! A small WebSocket client for tests: JSON frames in and out, with patience.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use crate::harness::{Harness, read_json};
use crate::raw::PATIENCE;

/// A socket to the server.
pub(crate) struct Client {
    pub(crate) inner: WebSocketStream<TcpStream>,
}

impl Client {
    /// Opens a socket and reads its `welcome`.
    pub(crate) async fn open(harness: &Harness) -> Self {
        let mut client = Self::open_with(harness, &[]).await.expect("a WebSocket");
        let welcome = client.next().await;
        assert_eq!(welcome["type"], "welcome", "{welcome}");
        client
    }

    /// Opens a socket with these headers; the status where that is refused.
    pub(crate) async fn open_with(harness: &Harness, headers: &[(&'static str, &str)]) -> Result<Self, StatusCode> {
        let url = format!("ws://{}/v1/ws", harness.authority());
        let mut request = url.into_client_request().expect("a request");
        for (name, value) in headers {
            request.headers_mut().append(*name, HeaderValue::from_str(value).expect("a value"));
        }
        let stream = TcpStream::connect(harness.server.address()).await.expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        let config = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
        match client_async_with_config(request, stream, Some(config)).await {
            Ok((inner, response)) => {
                let protocol = response.headers().get("sec-websocket-protocol").cloned();
                let asked = headers.iter().any(|(name, _)| *name == "sec-websocket-protocol");
                assert_eq!(protocol.is_some_and(|it| it == "levada.v1"), asked);
                Ok(Self { inner })
            }
            Err(Error::Http(response)) => Err(response.status()),
            Err(error) => panic!("{error}"),
        }
    }

    /// Sends a frame.
    pub(crate) async fn send(&mut self, frame: Value) {
        self.text(frame.to_string()).await;
    }

    /// Sends a text.
    pub(crate) async fn text(&mut self, text: impl Into<String>) {
        self.inner.send(Message::Text(text.into().into())).await.expect("the server reads");
    }

    /// The next message that is no ping.
    pub(crate) async fn message(&mut self) -> Option<Message> {
        loop {
            let message = timeout(PATIENCE, self.inner.next()).await.expect("a message in time");
            match message {
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(message)) => return Some(message),
                Some(Err(_)) | None => return None,
            }
        }
    }

    /// The next text frame.
    pub(crate) async fn next(&mut self) -> Value {
        match self.message().await {
            Some(Message::Text(text)) => read_json(text.as_bytes()).expect("a frame is JSON"),
            other => panic!("a frame was expected, not {other:?}"),
        }
    }

    /// The next text frame, which is of this type.
    pub(crate) async fn expect(&mut self, kind: &str) -> Value {
        let frame = self.next().await;
        assert_eq!(frame["type"], kind, "{frame}");
        frame
    }

    /// The next frame of this type; others are passed over.
    pub(crate) async fn until(&mut self, kind: &str) -> Value {
        loop {
            let frame = self.next().await;
            if frame["type"] == kind {
                return frame;
            }
        }
    }

    /// The next `error` frame's code.
    pub(crate) async fn refusal(&mut self) -> (Value, String) {
        let frame = self.expect("error").await;
        (frame["id"].clone(), frame["problem"]["code"].as_str().expect("a code").to_owned())
    }

    /// The next binary frame's header and batches.
    pub(crate) async fn binary(&mut self) -> (Value, Bytes) {
        match self.message().await {
            Some(Message::Binary(mut bytes)) => {
                let length = u32::from_be_bytes(bytes.split_to(4)[..].try_into().expect("four bytes"));
                let header = bytes.split_to(length as usize);
                (read_json(&header).expect("a header is JSON"), bytes)
            }
            other => panic!("a binary frame was expected, not {other:?}"),
        }
    }

    /// Reads to the close; its code and reason, if the server said any.
    pub(crate) async fn closed(&mut self) -> Option<(u16, String)> {
        loop {
            match self.message().await {
                Some(Message::Close(Some(CloseFrame { code, reason }))) => {
                    return Some((code.into(), reason.to_string()));
                }
                Some(Message::Close(None)) | None => return None,
                Some(_) => {}
            }
        }
    }

    /// Asserts that nothing comes before the answer to a ping of ours.
    pub(crate) async fn is_quiet(&mut self) {
        self.send(json!({ "type": "ping", "id": "quiet" })).await;
        assert_eq!(self.next().await, json!({ "type": "pong", "id": "quiet" }));
    }

    /// Subscribes with id `s` to topic `t`.
    pub(crate) async fn subscribe(&mut self, more: Value) -> Value {
        let mut frame = json!({ "type": "subscribe", "id": "s", "topics": ["t"] });
        frame.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        self.send(frame).await;
        self.expect("subscribed").await
    }

    /// Grants records to subscription `s`.
    pub(crate) async fn credit(&mut self, records: u64) {
        self.send(json!({ "type": "credit", "id": "s", "records": records })).await;
    }

    /// Reads `records` frames (and passes over `caught_up`) until there are so many records.
    pub(crate) async fn records(&mut self, count: usize) -> Vec<Value> {
        let mut records = Vec::new();
        while records.len() < count {
            let frame = self.next().await;
            match frame["type"].as_str() {
                Some("records") => records.extend(frame["records"].as_array().expect("a list").iter().cloned()),
                Some("caught_up") => {}
                other => panic!("{other:?}: {frame}"),
            }
        }
        records
    }
}

/// Offsets of records.
pub(crate) fn offsets(records: &[Value]) -> Vec<u64> {
    records.iter().map(|record| record["offset"].as_u64().expect("an offset")).collect()
}

/// Waits until `is_so` holds, asking again and again.
pub(crate) async fn eventually(mut is_so: impl AsyncFnMut() -> bool) {
    let asking = async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE.max(Duration::from_secs(20)), asking).await.expect("it becomes so in time");
}
