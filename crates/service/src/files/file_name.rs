//! Names for the files of inputs. Models read the extension, so it is preserved; the rest of a
//! client's text is made safe for the file system.

use tidegate_net::Url;

const MAX_LEN: usize = 200;

/// The name for a file downloaded from `url`.
pub fn from_url(url: &Url) -> String {
    let last = url
        .path_segments()
        .and_then(|mut segments| segments.next_back())
        .unwrap_or_default();
    let decoded: Vec<u8> = percent_decode(last);
    from_text(&String::from_utf8_lossy(&decoded))
}

/// A safe name for a file that its owner calls `text`.
pub(crate) fn from_text(text: &str) -> String {
    let safe: String = text
        .chars()
        .map(|c| if c == '/' || c.is_control() { '_' } else { c })
        .collect();
    match safe.as_str() {
        "" | "." | ".." => "file".to_owned(),
        _ => shortened(&safe),
    }
}

/// A name for data of this media type, with its usual extension.
pub fn from_mime(essence: &str) -> String {
    let extension = match essence {
        "text/plain" => Some("txt"),
        "text/html" => Some("html"),
        "text/markdown" => Some("md"),
        "image/jpeg" => Some("jpg"),
        "image/tiff" => Some("tiff"),
        "image/svg+xml" => Some("svg"),
        "audio/mpeg" => Some("mp3"),
        "audio/wav" | "audio/x-wav" => Some("wav"),
        "video/mp4" => Some("mp4"),
        "video/mpeg" => Some("mpeg"),
        "application/octet-stream" => Some("bin"),
        other => mime_guess::get_mime_extensions_str(other)
            .and_then(|extensions| extensions.first().copied()),
    };
    extension.map_or_else(
        || "file".to_owned(),
        |extension| format!("file.{extension}"),
    )
}

fn percent_decode(text: &str) -> Vec<u8> {
    let mut rest = text.as_bytes();
    let mut decoded = Vec::with_capacity(rest.len());
    while let Some((&byte, tail)) = rest.split_first() {
        let hex = tail
            .get(..2)
            .and_then(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok());
        match (byte, hex) {
            (b'%', Some(value)) => {
                decoded.push(value);
                rest = &tail[2..];
            }
            _ => {
                decoded.push(byte);
                rest = tail;
            }
        }
    }
    decoded
}

fn shortened(name: &str) -> String {
    if name.len() <= MAX_LEN {
        return name.to_owned();
    }
    let (stem, extension) = match name.rfind('.') {
        Some(dot) if name.len() - dot <= 20 => name.split_at(dot),
        Some(_) | None => (name, ""),
    };
    let mut cut = MAX_LEN - extension.len();
    while !stem.is_char_boundary(cut) {
        cut -= 1;
    }
    format!("{}{extension}", &stem[..cut])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_extension_and_are_safe() {
        let name = |url: &str| from_url(&Url::parse(url).unwrap());
        assert_eq!(name("https://h/a/cat%20one.png?x=1"), "cat one.png");
        assert_eq!(name("https://h/"), "file");
        assert_eq!(name("https://h/..%2f..%2fetc%2fpasswd"), ".._.._etc_passwd");
        assert_eq!(name("https://h/%2e%2e"), "file");
        let long = name(&format!("https://h/{}.safetensors", "é".repeat(300)));
        assert!(
            long.len() <= MAX_LEN && long.ends_with(".safetensors"),
            "{long}"
        );
    }

    #[test]
    fn media_types_get_their_usual_extension() {
        for (mime, expected) in [
            ("image/png", "file.png"),
            ("text/plain", "file.txt"),
            ("image/jpeg", "file.jpg"),
            ("x/unknown", "file"),
        ] {
            assert_eq!(from_mime(mime), expected);
        }
    }
}
