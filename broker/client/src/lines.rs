//! An answer's body as lines, as they arrive.

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use reqwest::{Error, Response};

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

    /// The lines; after an error nothing comes.
    pub(crate) fn into_stream(self) -> BoxStream<'static, Result<Bytes, Error>> {
        stream::unfold(Some(self), async |lines| {
            let mut lines = lines?;
            match lines.next().await {
                Ok(line) => line.map(|line| (Ok(line), Some(lines))),
                Err(error) => Some((Err(error), None)),
            }
        })
        .boxed()
    }
}
