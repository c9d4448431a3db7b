//! Following a topic live (server-sent events): the connection is made anew when it breaks, and goes on where it was.

use std::collections::VecDeque;

use reqwest::header::{ACCEPT, HeaderName};
use reqwest::{Method, Response};
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::sse::{SseEvent, SseParser};
use crate::{Client, ClientError, Record};

/// What a followed topic tells.
#[derive(Clone, Debug)]
pub enum FollowEvent {
    /// A record.
    Record(Box<Record>),
    /// Nothing new, but the server is there.
    Heartbeat,
    /// Offsets that are gone, in the server's words (JSON).
    Gap(String),
}

/// A topic that is followed. Where it is, is [`cursor`](Self::cursor).
#[derive(Debug)]
pub struct Follow {
    client: Client,
    topic: String,
    from: String,
    cursor: Option<String>,
    events: VecDeque<SseEvent>,
    connection: Option<(Response, SseParser)>,
    backoff: Backoff,
    answered: bool,
}

impl Client {
    /// Follows a topic from `earliest`, `latest`, `time:MS`, `tail:N` or a cursor. Connects with the first
    /// [`next`](Follow::next).
    #[must_use]
    pub fn follow(&self, topic: &str, from: &str) -> Follow {
        Follow {
            client: self.clone(),
            topic: topic.to_owned(),
            from: from.to_owned(),
            cursor: None,
            events: VecDeque::new(),
            connection: None,
            backoff: Backoff::default(),
            answered: false,
        }
    }
}

impl Follow {
    /// The place after the last event that was given, at first where the server began: `follow` from here goes on there.
    /// None before the server has told it.
    #[must_use]
    pub fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref()
    }

    /// Waits for the next event. Once the server has answered, a broken connection is made anew for as long as it
    /// takes, from where it was; nothing is given twice or left out.
    ///
    /// # Errors
    /// When the first connection fails, or the server says something final (no such topic, cursor gone).
    pub async fn next(&mut self) -> Result<FollowEvent, ClientError> {
        loop {
            if let Some(event) = self.events.pop_front() {
                match self.take(event) {
                    Ok(Some(event)) => return Ok(event),
                    Ok(None) => {}
                    Err(error) if error.is_retryable() => self.disconnect(&error).await,
                    Err(error) => return Err(error),
                }
            } else if let Some((response, parser)) = &mut self.connection {
                match response.chunk().await {
                    Ok(Some(bytes)) => self.events.extend(parser.push(&bytes)),
                    Ok(None) => self.disconnect(&self.client.broken("the stream ended")).await,
                    Err(error) => self.disconnect(&self.client.failure(error)).await,
                }
            } else {
                match self.connect().await {
                    Ok(connection) => self.connection = Some(connection),
                    Err(error) if self.answered && error.is_retryable() => self.disconnect(&error).await,
                    Err(error) => return Err(error),
                }
            }
        }
    }

    async fn disconnect(&mut self, why: &ClientError) {
        self.connection = None;
        self.events.clear();
        let pause = self.backoff.next_pause(why.retry_after());
        tokio::time::sleep_until(Instant::now() + pause).await;
    }

    async fn connect(&mut self) -> Result<(Response, SseParser), ClientError> {
        const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
        let request = self.client.request(Method::GET, &["v1", "topics", &self.topic, "records"])?;
        let request = request.header(ACCEPT, "text/event-stream");
        let request = match &self.cursor {
            Some(cursor) => request.header(LAST_EVENT_ID, cursor),
            None => request.query(&[("from", &self.from)]),
        };
        let response = self.client.send(request).await?;
        self.answered = true;
        Ok((response, SseParser::default()))
    }

    fn take(&mut self, event: SseEvent) -> Result<Option<FollowEvent>, ClientError> {
        // The server's first block is an id without data. Asked for again after a break, `latest`, `tail:N` or `time:MS`
        // would be somewhere else.
        let Some(data) = event.data else {
            self.move_to(event.id);
            return Ok(None);
        };
        let bad = |error: serde_json::Error| self.client.unexpected(200, format!("event {}: {error}", event.name));
        let given = match event.name.as_str() {
            "record" => Some(FollowEvent::Record(serde_json::from_str(&data).map_err(bad)?)),
            "heartbeat" => Some(FollowEvent::Heartbeat),
            "gap" => Some(FollowEvent::Gap(data)),
            "error" => {
                let problem = serde_json::from_str(&data).map_err(bad)?;
                return Err(ClientError::Refused { problem, retry_after: None });
            }
            _ => None,
        };
        self.backoff = Backoff::default();
        self.move_to(event.id);
        Ok(given)
    }

    fn move_to(&mut self, id: String) {
        if !id.is_empty() {
            self.cursor = Some(id);
        }
    }
}
