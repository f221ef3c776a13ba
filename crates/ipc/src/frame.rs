//! Framing: four bytes of length (little endian), then that many bytes of JSON.
//!
//! Lines would be easier to read, but a client's input is forwarded as the bytes that were received, and
//! they may contain line breaks.

/// The size of the header of a frame, in bytes.
pub const HEADER: usize = 4;

/// The largest message. A larger length means that other code wrote on the channel.
pub const MAX: usize = 64 * 1024 * 1024;

/// The length of a frame is larger than [`MAX`], so the bytes are not a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Oversized {
    /// The length in the header.
    pub length: usize,
}

impl std::fmt::Display for Oversized {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the frame header has the length {}, the limit is {MAX}",
            self.length
        )
    }
}

impl std::error::Error for Oversized {}

/// The length of the first message in `buffer` without the header; `None` while it is incomplete.
pub fn complete(buffer: &[u8]) -> Result<Option<usize>, Oversized> {
    Ok(length(buffer)?.filter(|length| buffer.len() >= HEADER + length))
}

/// The length of the first message in `buffer`, which may be incomplete.
fn length(buffer: &[u8]) -> Result<Option<usize>, Oversized> {
    let Some(header) = buffer.first_chunk::<HEADER>() else {
        return Ok(None);
    };
    let length = u32::from_le_bytes(*header) as usize;
    if length > MAX {
        return Err(Oversized { length });
    }
    Ok(Some(length))
}

/// The number of bytes that the first message in `buffer` still needs; `None` while its header is
/// incomplete.
pub fn missing(buffer: &[u8]) -> Result<Option<usize>, Oversized> {
    let Some(length) = length(buffer)? else {
        return Ok(None);
    };
    Ok(Some((HEADER + length).saturating_sub(buffer.len())))
}

/// Appends one frame to `buffer`; `write` appends its JSON.
pub fn append(buffer: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = buffer.len();
    buffer.extend_from_slice(&[0; HEADER]);
    write(buffer);
    let length = (buffer.len() - start - HEADER) as u32;
    buffer[start..start + HEADER].copy_from_slice(&length.to_le_bytes());
}

/// Adds `bytes` to the length of the frame that `frame` begins with: they are sent as a part of it, from
/// another buffer.
pub fn add_to_length(frame: &mut [u8], bytes: usize) {
    let (header, _) = frame
        .split_first_chunk_mut::<HEADER>()
        .expect("a frame has a header");
    let length = u32::from_le_bytes(*header) + bytes as u32;
    *header = length.to_le_bytes();
}

/// Appends `message` as one frame.
pub fn append_json(buffer: &mut Vec<u8>, message: &impl serde::Serialize) {
    append(buffer, |out| {
        serde_json::to_writer(out, message)
            .expect("messages have string keys, and writing to a Vec does not fail");
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_complete_only_with_its_last_byte() {
        let mut buffer = Vec::new();
        append_json(&mut buffer, &"hello");
        for cut in 0..buffer.len() {
            assert_eq!(complete(&buffer[..cut]), Ok(None), "cut at {cut}");
            let missing = missing(&buffer[..cut]);
            assert_eq!(missing, Ok((cut >= HEADER).then(|| buffer.len() - cut)));
        }
        assert_eq!(complete(&buffer), Ok(Some(7)));
        buffer.extend_from_slice(b"next");
        assert_eq!(complete(&buffer), Ok(Some(7)));
    }

    #[test]
    fn a_part_of_a_frame_can_come_from_another_buffer() {
        let mut frame = Vec::new();
        append(&mut frame, |out| out.extend_from_slice(b"[]"));
        add_to_length(&mut frame, 3);
        assert_eq!(complete(&frame), Ok(None));
        let value = b"123";
        let sent = [&frame[..HEADER + 1], &value[..], &frame[HEADER + 1..]].concat();
        assert_eq!(complete(&sent), Ok(Some(5)));
        assert_eq!(&sent[HEADER..], b"[123]");
    }

    #[test]
    fn text_on_the_channel_is_not_a_frame() {
        assert!(complete(b"Traceback (most recent call last)").is_err());
    }
}
