//! Positions in lists, encoded as cursors for clients.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tidegate_core::record::JobRecord;
use tidegate_core::store::{Cursor, Page};

use crate::columns;

/// A record with its job number.
pub(crate) type NumberedRecord = (i64, JobRecord);

/// The position of a job in a list: its time of creation, then its number. The job itself may have
/// been deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ListPosition {
    pub(crate) created_at: i64,
    pub(crate) number: i64,
}

impl ListPosition {
    /// After every job.
    pub(crate) const NEWEST: Self = Self {
        created_at: i64::MAX,
        number: i64::MAX,
    };

    /// The position of a job.
    pub(crate) fn of((number, record): &NumberedRecord) -> Self {
        Self {
            created_at: columns::micros(record.spec.created_at),
            number: *number,
        }
    }
}

/// A cursor: a position and the direction from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageCursor {
    /// Jobs before the position.
    Older(ListPosition),
    /// Jobs after the position.
    Newer(ListPosition),
}

const OLDER: u8 = 1;
const NEWER: u8 = 2;

impl PageCursor {
    pub(crate) fn cursor(self) -> Cursor {
        let (direction, position) = match self {
            Self::Older(position) => (OLDER, position),
            Self::Newer(position) => (NEWER, position),
        };
        let mut bytes = [direction; 17];
        bytes[1..9].copy_from_slice(&position.created_at.to_be_bytes());
        bytes[9..].copy_from_slice(&position.number.to_be_bytes());
        Cursor(URL_SAFE_NO_PAD.encode(bytes))
    }

    /// `None` for a text that is not a cursor of this store.
    pub(crate) fn parse(cursor: &Cursor) -> Option<Self> {
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

/// A page of these jobs, with cursors if there are older and newer jobs beside it.
pub(crate) fn page_of(items: Vec<NumberedRecord>, older: bool, newer: bool) -> Page<JobRecord> {
    let next = items
        .last()
        .filter(|_| older)
        .map(|last| PageCursor::Older(ListPosition::of(last)).cursor());
    let previous = items
        .first()
        .filter(|_| newer)
        .map(|first| PageCursor::Newer(ListPosition::of(first)).cursor());
    Page {
        items: items.into_iter().map(|(_, record)| record).collect(),
        next,
        previous,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_as_text_and_other_texts_are_rejected() {
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
