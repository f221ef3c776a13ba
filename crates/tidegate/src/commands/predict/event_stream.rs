//! Parses server-sent events.

/// Collects the bytes of a response, and splits them into events.
#[derive(Default)]
pub(super) struct EventStream {
    /// What follows the last complete event.
    rest: Vec<u8>,
}

/// One event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServerEvent {
    pub(super) name: String,
    pub(super) data: String,
}

impl EventStream {
    /// Adds bytes, and returns the events that are complete now. Comments are skipped.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<ServerEvent> {
        self.rest.extend_from_slice(bytes);
        let mut events = Vec::new();
        while let Some(end) = self.rest.windows(2).position(|pair| pair == b"\n\n") {
            let block: Vec<u8> = self.rest.drain(..end + 2).collect();
            events.extend(parse(&String::from_utf8_lossy(&block)));
        }
        events
    }
}

fn parse(block: &str) -> Option<ServerEvent> {
    let mut event = ServerEvent {
        name: String::new(),
        data: String::new(),
    };
    for line in block.lines() {
        if let Some(name) = line.strip_prefix("event:") {
            name.trim().clone_into(&mut event.name);
        } else if let Some(data) = line.strip_prefix("data:") {
            event.data.push_str(data.strip_prefix(' ').unwrap_or(data));
        }
    }
    (!event.name.is_empty()).then_some(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_complete_at_an_empty_line() {
        let mut stream = EventStream::default();
        let event = |name: &str, data: &str| ServerEvent {
            name: name.to_owned(),
            data: data.to_owned(),
        };
        assert_eq!(stream.push(b": keep-alive\n\nevent: out"), []);
        assert_eq!(stream.push(b"put\ndata: {\"a\":1}\n"), []);
        assert_eq!(
            stream.push(b"\nevent: log\ndata: 2\n\nevent"),
            [event("output", "{\"a\":1}"), event("log", "2")]
        );
    }
}
