//! Places in lists, as text for clients.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tidegate_core::store::Cursor;

/// Where a job stands in a list: by its moment, and among those of one moment by its number. The job itself
/// need not be there any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ListPosition {
    pub(super) created_at: i64,
    pub(super) number: i64,
}

/// A way through a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageCursor {
    /// To those before the position.
    Older(ListPosition),
    /// To those after it.
    Newer(ListPosition),
}

const OLDER: u8 = 1;
const NEWER: u8 = 2;

impl PageCursor {
    pub(super) fn cursor(self) -> Cursor {
        let (direction, position) = match self {
            Self::Older(position) => (OLDER, position),
            Self::Newer(position) => (NEWER, position),
        };
        let mut bytes = [direction; 17];
        bytes[1..9].copy_from_slice(&position.created_at.to_be_bytes());
        bytes[9..].copy_from_slice(&position.number.to_be_bytes());
        Cursor(URL_SAFE_NO_PAD.encode(bytes))
    }

    /// `None` for what we did not write.
    pub(super) fn parse(cursor: &Cursor) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(&cursor.0).ok()?;
        let (direction, rest) = bytes.split_first()?;
        let (created_at, number) = rest.split_first_chunk::<8>()?;
        let position = ListPosition {
            created_at: i64::from_be_bytes(*created_at),
            number: i64::from_be_bytes(number.try_into().ok()?),
        };
        match *direction {
            OLDER => Some(Self::Older(position)),
            NEWER => Some(Self::Newer(position)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_survives_as_text_and_nothing_else_is_one() {
        let position = ListPosition {
            created_at: i64::MIN,
            number: i64::MAX,
        };
        for way in [PageCursor::Older(position), PageCursor::Newer(position)] {
            assert_eq!(PageCursor::parse(&way.cursor()), Some(way));
        }
        let long = "A".repeat(100_000);
        for bad in [
            "",
            "A",
            "====",
            "AAAA",
            "\0",
            "ü",
            "../../etc/passwd",
            &long,
            &URL_SAFE_NO_PAD.encode([3u8; 17]),
            &URL_SAFE_NO_PAD.encode([1u8; 18]),
        ] {
            assert_eq!(PageCursor::parse(&Cursor(bad.to_owned())), None, "{bad:?}");
        }
    }
}
