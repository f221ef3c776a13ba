//! Parses server-sent events from the bytes of a response as they arrive.
//!
//! The rules are those of the HTML standard, with two differences. The size of an event is limited.
//! An event that the end of the stream cuts off can still be read with [`SseParser::finish`], because
//! some servers omit the last empty line; a caller that needs complete events checks their data.

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// The name of the event; empty if the server gives it none.
    pub name: &'a [u8],
    /// Its data: the lines of the `data` fields, joined by line feeds.
    pub data: &'a [u8],
}

/// An event has more bytes than the parser accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream has more than {max_size} bytes")]
pub struct SseEventTooLarge {
    /// The most bytes of an event.
    pub max_size: usize,
}

/// Splits a stream into events, wherever the parts of the stream are divided.
#[derive(Debug, Clone)]
pub struct SseParser {
    max_size: usize,
    /// The beginning of a line whose end has not arrived.
    line: Vec<u8>,
    fields: EventFields,
    /// The last byte was a carriage return that ended a line: a line feed after it belongs to it.
    after_cr: bool,
    /// No line was complete yet: a byte order mark is skipped.
    at_start: bool,
    too_large: bool,
}

/// The fields of an event that is not complete.
#[derive(Debug, Clone, Default)]
struct EventFields {
    name: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
}

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

impl SseParser {
    /// A parser for events of up to `max_size` bytes.
    pub fn new(max_size: usize) -> Self {
        Self {
            max_size,
            line: Vec::new(),
            fields: EventFields::default(),
            after_cr: false,
            at_start: true,
            too_large: false,
        }
    }

    /// Adds bytes, and calls `on_event` for each event that is complete now. After an error, no more
    /// events are parsed.
    pub fn push(
        &mut self,
        mut bytes: &[u8],
        mut on_event: impl FnMut(SseEvent<'_>),
    ) -> Result<(), SseEventTooLarge> {
        if self.too_large {
            return Err(self.error());
        }
        if self.after_cr && !bytes.is_empty() {
            self.after_cr = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) {
            self.end_line(&bytes[..end], &mut on_event)?;
            let is_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            if is_cr {
                self.after_cr = bytes.is_empty();
                bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
            }
        }
        self.check_size(self.line.len() + bytes.len())?;
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    /// Calls `on_event` with the event that has begun, if it has data, as if the stream ended with an
    /// empty line.
    pub fn finish(
        &mut self,
        mut on_event: impl FnMut(SseEvent<'_>),
    ) -> Result<(), SseEventTooLarge> {
        if self.too_large {
            return Err(self.error());
        }
        self.end_line(b"", &mut on_event)?;
        self.fields.dispatch(&mut on_event);
        Ok(())
    }

    /// Ends a line with its last bytes.
    fn end_line(
        &mut self,
        rest: &[u8],
        on_event: &mut impl FnMut(SseEvent<'_>),
    ) -> Result<(), SseEventTooLarge> {
        self.check_size(self.line.len() + rest.len())?;
        // Usually a whole line arrives at once and is not copied.
        let held = std::mem::take(&mut self.line);
        let mut line = rest;
        let joined;
        if !held.is_empty() {
            joined = [&held, rest].concat();
            line = &joined;
        }
        if std::mem::take(&mut self.at_start) {
            line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        }
        if line.is_empty() {
            self.fields.dispatch(on_event);
        } else {
            self.fields.add(line);
        }
        self.line = held;
        self.line.clear();
        Ok(())
    }

    fn check_size(&mut self, line: usize) -> Result<(), SseEventTooLarge> {
        self.too_large = line + self.fields.name.len() + self.fields.data.len() > self.max_size;
        if self.too_large {
            return Err(self.error());
        }
        Ok(())
    }

    fn error(&self) -> SseEventTooLarge {
        SseEventTooLarge {
            max_size: self.max_size,
        }
    }
}

impl EventFields {
    /// Adds a line. Comments and other fields than `event` and `data` are ignored.
    fn add(&mut self, line: &[u8]) {
        let colon = memchr::memchr(b':', line);
        let field = &line[..colon.unwrap_or(line.len())];
        let value = colon.map_or(&b""[..], |at| &line[at + 1..]);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"event" => {
                self.name.clear();
                self.name.extend_from_slice(value);
            }
            b"data" => {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
                self.has_data = true;
            }
            _ => {}
        }
    }

    fn dispatch(&mut self, on_event: &mut impl FnMut(SseEvent<'_>)) {
        if self.has_data {
            on_event(SseEvent {
                name: &self.name,
                data: &self.data,
            });
        }
        self.name.clear();
        self.data.clear();
        self.has_data = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Events = Vec<(String, String)>;

    const MAX_SIZE: usize = 100;

    /// The events of a stream that arrives in these parts, and whether it was too large.
    fn read<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> (Events, bool) {
        let mut parser = SseParser::new(MAX_SIZE);
        let mut events = Events::new();
        let mut add = |event: SseEvent<'_>| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            events.push((text(event.name), text(event.data)));
        };
        let mut too_large = false;
        for part in parts {
            too_large |= parser.push(part, &mut add).is_err();
        }
        too_large |= parser.finish(&mut add).is_err();
        (events, too_large)
    }

    fn events(text: &str) -> Events {
        let (events, too_large) = read([text.as_bytes()]);
        assert!(!too_large);
        events
    }

    fn event(name: &str, data: &str) -> (String, String) {
        (name.to_owned(), data.to_owned())
    }

    #[test]
    fn fields_are_parsed_as_the_standard_says() {
        for (text, expected) in [
            ("data: a\n\n", vec![event("", "a")]),
            ("\u{feff}data: a\n\n", vec![event("", "a")]),
            (
                "data:a\r\rdata:  b\r\n\r\n",
                vec![event("", "a"), event("", " b")],
            ),
            ("event: x\ndata: 1\ndata: 2\n\n", vec![event("x", "1\n2")]),
            (
                ": comment\nid: 7\nretry: 3\ndata: a\n\n",
                vec![event("", "a")],
            ),
            ("event: x\n\ndata: a\n\n", vec![event("", "a")]),
            (
                "data\n\ndata:\ndata\n\n",
                vec![event("", ""), event("", "\n")],
            ),
            (
                "event: x\nevent: y\ndata: a:b\n\n\n\n",
                vec![event("y", "a:b")],
            ),
            ("data: cut", vec![event("", "cut")]),
            ("event: cut\n", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(events(text), expected, "{text:?}");
        }
    }

    #[test]
    fn an_event_is_complete_as_soon_as_its_last_byte_arrives() {
        for end in ["\n\n", "\r\r", "\r\n\r"] {
            let mut parser = SseParser::new(MAX_SIZE);
            let mut count = 0;
            let text = format!("data: a{end}");
            parser.push(text.as_bytes(), |_| count += 1).unwrap();
            assert_eq!(count, 1, "{end:?}");
        }
    }

    #[test]
    fn large_events_are_refused_however_they_arrive() {
        let long = format!("data: {}\n\n", "x".repeat(MAX_SIZE));
        let lines = "data: 12345\n".repeat(MAX_SIZE / 4);
        let comment = format!("data: ok\n\n:{}", "c".repeat(MAX_SIZE));
        for (text, expected) in [(long, 0), (lines, 0), (comment, 1)] {
            for size in [1, 7, text.len()] {
                let (events, too_large) = read(text.as_bytes().chunks(size));
                assert_eq!((events.len(), too_large), (expected, true), "{text}");
            }
        }
        assert_eq!(events(&"data: x\n\n".repeat(MAX_SIZE)).len(), MAX_SIZE);
    }

    proptest::proptest! {
        #[test]
        fn the_division_into_parts_does_not_matter(
            lines in proptest::collection::vec("(data|event|id|:)?(: |:)?[ab:é]{0,12}(\r\n|\n|\r|)(\r\n|\n|\r|)", 0..12),
            cuts in proptest::collection::vec(0usize..200, 0..8),
        ) {
            let text = lines.concat().into_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).chain([0, text.len()]).collect();
            cuts.sort_unstable();
            let parts = cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]);
            let whole = read([&text[..]]);
            proptest::prop_assert_eq!(&read(parts), &whole);
            proptest::prop_assert_eq!(read(text.chunks(1)), whole);
        }
    }
}
