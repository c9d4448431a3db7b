//! Takes a `text/event-stream` apart (WHATWG HTML, "Server-sent events"), piece by piece as it arrives. Knows nothing of
//! what the events mean and nothing of connections.

/// One event as it was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SseEvent {
    /// Its `event:`; `message` where none was named.
    pub(crate) name: String,
    /// Its `data:` lines, joined by line breaks; none where it only moves the id, which a browser keeps without telling
    /// its page.
    pub(crate) data: Option<String>,
    /// The `id:` in force, which holds until another is sent.
    pub(crate) id: String,
}

/// Gathers bytes and gives back whole events.
#[derive(Debug, Default)]
pub(crate) struct SseParser {
    line: Vec<u8>,
    after_cr: bool,
    started: bool,
    name: String,
    data: Option<String>,
    id: String,
    moves_id: bool,
}

impl SseParser {
    /// Takes bytes in pieces of any size; gives the events that they complete, in order.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<SseEvent> {
        let mut events = Vec::new();
        for &byte in bytes {
            let after_cr = std::mem::take(&mut self.after_cr);
            match byte {
                b'\n' if after_cr => {}
                b'\n' | b'\r' => {
                    self.after_cr = byte == b'\r';
                    let line = std::mem::take(&mut self.line);
                    events.extend(self.take_line(&line));
                }
                other => self.line.push(other),
            }
        }
        events
    }

    fn take_line(&mut self, line: &[u8]) -> Option<SseEvent> {
        let text = String::from_utf8_lossy(line);
        let text = if self.started { &text } else { text.strip_prefix('\u{feff}').unwrap_or(&text) };
        self.started = true;
        if text.is_empty() {
            return self.dispatch();
        }
        let (field, value) = text.split_once(':').unwrap_or((text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            "id" if !value.contains('\0') => {
                value.clone_into(&mut self.id);
                self.moves_id = true;
            }
            _ => {}
        }
        None
    }

    fn dispatch(&mut self) -> Option<SseEvent> {
        let name = std::mem::take(&mut self.name);
        let data = self.data.take();
        if !std::mem::take(&mut self.moves_id) && data.is_none() {
            return None;
        }
        let name = if name.is_empty() { "message".to_owned() } else { name };
        Some(SseEvent { name, data, id: self.id.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::{SseEvent, SseParser};

    fn event(name: &str, data: &str, id: &str) -> SseEvent {
        SseEvent { name: name.into(), data: Some(data.into()), id: id.into() }
    }

    const STREAM: &str = "\u{feff}: a comment\nevent: record\nid: c1\ndata: {\"a\":1}\n\nevent:heartbeat\r\ndata:\r\n\r\nretry: \
                          9\ndata: two\ndata:  lines\n\nid: c2\n\nevent: lost\n\ndata\n\n";

    fn expected() -> Vec<SseEvent> {
        vec![
            event("record", "{\"a\":1}", "c1"),
            event("heartbeat", "", "c1"),
            event("message", "two\n lines", "c1"),
            SseEvent { data: None, ..event("message", "", "c2") },
            event("message", "", "c2"),
        ]
    }

    #[test]
    fn fields_comments_and_the_last_id_are_read_as_the_standard_says() {
        assert_eq!(SseParser::default().push(STREAM.as_bytes()), expected());
    }

    #[test]
    fn events_are_the_same_however_the_stream_is_cut() {
        for size in 1..STREAM.len() {
            let mut parser = SseParser::default();
            let events: Vec<_> = STREAM.as_bytes().chunks(size).flat_map(|piece| parser.push(piece)).collect();
            assert_eq!(events, expected(), "pieces of {size}");
        }
    }

    #[test]
    fn an_event_that_is_not_finished_is_not_given() {
        assert_eq!(SseParser::default().push(b"data: half\n"), []);
    }
}
