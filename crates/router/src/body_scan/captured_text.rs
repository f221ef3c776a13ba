//! The text of a JSON string, in memory of a fixed size.

use std::fmt;

/// The most bytes of a text.
pub(super) const MAX_LENGTH: usize = 256;

/// A text whose escapes are decoded.
#[derive(Clone)]
pub(super) struct CapturedText {
    bytes: [u8; MAX_LENGTH],
    length: usize,
    /// The first half of a character that is written as two escapes.
    high_surrogate: Option<u16>,
    /// The text is too long, or contains half a character.
    is_invalid: bool,
}

impl Default for CapturedText {
    fn default() -> Self {
        Self {
            bytes: [0; MAX_LENGTH],
            length: 0,
            high_surrogate: None,
            is_invalid: false,
        }
    }
}

impl CapturedText {
    pub(super) fn clear(&mut self) {
        self.length = 0;
        self.high_surrogate = None;
        self.is_invalid = false;
    }

    /// Adds bytes that are not escaped.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.is_invalid |= self.high_surrogate.take().is_some();
        let count = bytes.len().min(MAX_LENGTH - self.length);
        self.is_invalid |= count < bytes.len();
        self.bytes[self.length..self.length + count].copy_from_slice(&bytes[..count]);
        self.length += count;
    }

    /// Adds the UTF-16 unit of an escape.
    pub(super) fn push_unit(&mut self, unit: u16) {
        let units = [self.high_surrogate.take(), Some(unit)];
        if units[0].is_none() && (0xD800..0xDC00).contains(&unit) {
            self.high_surrogate = Some(unit);
            return;
        }
        for character in char::decode_utf16(units.into_iter().flatten()) {
            match character {
                Ok(character) => self.push(character.encode_utf8(&mut [0; 4]).as_bytes()),
                Err(_) => self.is_invalid = true,
            }
        }
    }

    /// The bytes; of a long text only the first ones.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The text, if it is complete and Unicode.
    pub(super) fn text(&self) -> Option<&str> {
        if self.is_invalid || self.high_surrogate.is_some() {
            return None;
        }
        std::str::from_utf8(self.bytes()).ok()
    }
}

impl PartialEq for CapturedText {
    fn eq(&self, other: &Self) -> bool {
        (self.bytes(), self.text()) == (other.bytes(), other.text())
    }
}

impl Eq for CapturedText {}

impl fmt::Debug for CapturedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.bytes()))
    }
}
