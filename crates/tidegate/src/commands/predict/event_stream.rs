//! Parses server-sent events.

/// Collects the bytes of a response, and splits them into events.
#[derive(Default)]
pub(super) struct EventStream {
    /// What follows the last complete event.
    rest: Vec<u8>,
    /// How much of it contains no end of an event. A large event arrives in many parts.
    searched: usize,
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
        let (mut events, mut begin) = (Vec::new(), 0);
        while let Some(end) = self.rest[self.searched..]
            .windows(2)
            .position(|pair| pair == b"\n\n")
        {
            let end = self.searched + end;
            events.extend(parse(&String::from_utf8_lossy(&self.rest[begin..end])));
            (begin, self.searched) = (end + 2, end + 2);
        }
        self.rest.drain(..begin);
        // The last byte may be the first half of the end.
        self.searched = self.rest.len().saturating_sub(1);
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
        assert_eq!(stream.push(b": end\ndata: 3\n\n"), [event("end", "3")]);
    }

    /// The parts may be split anywhere.
    #[test]
    fn events_are_the_same_however_they_are_split() {
        let text = b"event: a\ndata: 1\n\n\n\nevent: b\ndata: 2\n\nevent: c\n";
        let mut whole = EventStream::default();
        let events = whole.push(text);
        assert_eq!(events.len(), 2);
        for size in 1..text.len() {
            let mut stream = EventStream::default();
            let split: Vec<_> = text
                .chunks(size)
                .flat_map(|part| stream.push(part))
                .collect();
            assert_eq!(split, events, "{size}");
        }
    }
}
