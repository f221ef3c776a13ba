//! Finds the model in a `multipart/form-data` body, as clients upload files with it.

use std::ops::Range;

use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use memchr::memmem;

/// The field `model` of a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FormModel {
    pub(super) name: String,
    /// Where its value is in the body.
    pub(super) range: Range<usize>,
}

/// The longest name of a model.
const MAX_NAME: usize = 512;
/// The parts that are searched, and the longest head of a part: a body must not cost more than a look.
const MAX_PARTS: usize = 64;
const MAX_HEAD: usize = 4096;

impl FormModel {
    /// The model in the first bytes of a form. Clients send it before the file.
    pub(super) fn find(headers: &HeaderMap, body: &[u8]) -> Option<Self> {
        let content_type = headers.get(CONTENT_TYPE)?.to_str().ok()?;
        if !content_type.starts_with("multipart/form-data") {
            return None;
        }
        let boundary = multer::parse_boundary(content_type).ok()?;
        let delimiter = format!("--{boundary}");
        memmem::find_iter(body, delimiter.as_bytes())
            .take(MAX_PARTS)
            .find_map(|at| field(body, at + delimiter.len(), &delimiter))
    }
}

/// The model, if the part that begins here is the field `model`.
fn field(body: &[u8], start: usize, delimiter: &str) -> Option<FormModel> {
    let start = start + 2;
    let part = body[start - 2..].strip_prefix(b"\r\n")?;
    let head_end = memmem::find(&part[..part.len().min(MAX_HEAD)], b"\r\n\r\n")?;
    let head = std::str::from_utf8(&part[..head_end]).ok()?;
    let is_model = head.lines().any(|line| {
        let line = line.to_ascii_lowercase();
        line.starts_with("content-disposition:")
            && line
                .split(';')
                .any(|item| matches!(item.trim(), "name=\"model\"" | "name=model"))
    });
    if !is_model {
        return None;
    }
    let value_start = head_end + 4;
    let end = format!("\r\n{delimiter}");
    let value = &part[value_start..];
    let value = &value[..value.len().min(MAX_NAME + end.len())];
    let len = memmem::find(value, end.as_bytes())?;
    let range = start + value_start..start + value_start + len;
    let name = std::str::from_utf8(&body[range.clone()]).ok()?.to_owned();
    Some(FormModel { name, range })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(content_type: &str, body: &str) -> Option<FormModel> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, content_type.parse().unwrap());
        FormModel::find(&headers, body.as_bytes())
    }

    #[test]
    fn the_field_is_found_before_and_after_others() {
        let part = |name: &str, value: &str| {
            format!("--b1\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
        };
        let model = part("model", "whisper");
        for body in [
            format!("{model}{}", part("language", "en")),
            format!("{}{model}", part("language", "model")),
        ] {
            let body = format!("{body}--b1--\r\n");
            let found = find("multipart/form-data; boundary=b1", &body).unwrap();
            assert_eq!(found.name, "whisper");
            assert_eq!(&body[found.range], "whisper");
        }
        assert_eq!(
            find("multipart/form-data; boundary=b1", &part("file", "x")),
            None
        );
        assert_eq!(find("application/json", &model), None);
        assert_eq!(find("multipart/form-data", &model), None);
    }
}
