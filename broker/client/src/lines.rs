//! An answer's body as lines of JSON, as they arrive.

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use reqwest::{Error, Response};
use serde::de::DeserializeOwned;

use crate::{Client, ClientError};

/// Cuts a body at line breaks. What follows the last one is a line too, unless it is empty.
pub(crate) struct Lines {
    response: Response,
    buffer: BytesMut,
    searched: usize,
}

impl Lines {
    pub(crate) fn new(response: Response) -> Self {
        Self { response, buffer: BytesMut::new(), searched: 0 }
    }

    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            if let Some(end) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(self.searched + end + 1).freeze();
                self.searched = 0;
                return Ok(Some(line.slice(..line.len() - 1)));
            }
            self.searched = self.buffer.len();
            match self.response.chunk().await? {
                Some(bytes) => self.buffer.extend_from_slice(&bytes),
                None => {
                    self.searched = 0;
                    let rest = self.buffer.split().freeze();
                    return Ok(Some(rest).filter(|rest| !rest.is_empty()));
                }
            }
        }
    }

    /// What the lines hold. A line that holds something else is told and the next ones come; after a broken connection
    /// nothing does.
    pub(crate) fn into_values<T: DeserializeOwned>(self, client: Client) -> BoxStream<'static, Result<T, ClientError>> {
        let lines = stream::unfold(Some(self), async |lines| {
            let mut lines = lines?;
            match lines.next().await {
                Ok(line) => line.map(|line| (Ok(line), Some(lines))),
                Err(error) => Some((Err(error), None)),
            }
        });
        let value = move |line: Result<Bytes, Error>| {
            let line = line.map_err(|error| client.failure(error))?;
            serde_json::from_slice(&line).map_err(|error| client.unexpected(200, format!("in a line: {error}")))
        };
        lines.map(value).boxed()
    }
}
