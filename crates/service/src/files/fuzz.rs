//! Fuzz targets for files.

use std::path::{Component, Path};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use data_url::DataUrl;
use serde_json::value::RawValue;
use tidegate_core::{OutputFile, OutputFileKind};
use tidegate_fuzzing::parts;
use tidegate_net::{Client, Config, Url};

use super::output_files::splice;
use super::{Files, StoredInputs, file_name as names};

/// The file name for any URL or media type is a single normal path component.
pub fn file_name(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let urls = [Url::parse(&text), Url::parse(&format!("https://h/{text}"))];
    let names = urls
        .iter()
        .flatten()
        .map(names::from_url)
        .chain([names::from_mime(&text)]);
    for name in names {
        assert!((1..=200).contains(&name.len()), "{} bytes", name.len());
        assert!(
            !name.chars().any(|c| c.is_control() || c == '/'),
            "{name:?}"
        );
        let mut components = Path::new(&name).components();
        assert!(
            matches!(components.next(), Some(Component::Normal(only)) if only == name.as_str())
                && components.next().is_none(),
            "{name:?}"
        );
    }
}

/// Small, so that fuzz inputs reach the limit.
const MAX_FILE: u64 = 32;

/// The files of a server that accepts only small ones.
pub(crate) static FILES: LazyLock<Files> = LazyLock::new(|| Files {
    net: Arc::new(Client::new(Config {
        max_file: MAX_FILE,
        ..Config::default()
    })),
    upload_url: None,
    owner: None,
    file_store: None,
});

/// A text accepted as a file is an HTTP URL with a host or a data URI within the size limit.
pub fn data_uri(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    for text in [&*text, &format!("data:{text}")] {
        match FILES.check(&StoredInputs::default(), text) {
            Err(reason) => assert!(!reason.is_empty()),
            Ok(bytes) => match DataUrl::process(text) {
                Ok(data) => {
                    let (body, _) = data
                        .decode_to_vec()
                        .expect("a counted data URI can be decoded");
                    assert_eq!(bytes, body.len() as u64, "counted and decoded sizes differ");
                    assert!(bytes <= MAX_FILE, "{bytes} bytes were accepted");
                    let mime = data.mime_type();
                    assert!(
                        !names::from_mime(&format!("{}/{}", mime.type_, mime.subtype))
                            .contains('/')
                    );
                }
                Err(_) => {
                    let url = Url::parse(text).expect("a text that is not a data URI is a URL");
                    assert!(
                        bytes == 0 && matches!(url.scheme(), "http" | "https") && url.has_host(),
                        "{url}"
                    );
                }
            },
        }
    }
}

/// Replacing files by addresses keeps the JSON valid and the rest of it unchanged.
///
/// The first part is an output, each other one a file: a byte that selects the offset, then the
/// address.
pub fn splice_files(input: &[u8]) {
    let mut parts = parts(input);
    let json = Bytes::copy_from_slice(parts.next().unwrap_or_default());
    if serde_json::from_slice::<&RawValue>(&json).is_err() {
        return;
    }
    let (mut files, mut addresses) = (Vec::new(), Vec::new());
    for part in parts {
        let Some((selector, address)) = part.split_first() else {
            continue;
        };
        files.push(OutputFile {
            path: "/f".into(),
            mime_type: None,
            offset: offset(&json, *selector),
            kind: OutputFileKind::User,
        });
        addresses.push(String::from_utf8_lossy(address).into_owned());
    }
    let Some(spliced) = splice(&json, &files, &addresses) else {
        return;
    };
    serde_json::from_slice::<&RawValue>(&spliced).expect("the result is JSON");
    let quoted: usize = addresses
        .iter()
        .map(|address| serde_json::json!(address).to_string().len())
        .sum();
    assert_eq!(spliced.len() + 2 * files.len(), json.len() + quoted);
}

/// The offset of the nth empty string; for selectors from 128 any offset, also one out of range.
fn offset(json: &[u8], selector: u8) -> usize {
    match selector {
        0..128 => json
            .windows(2)
            .enumerate()
            .filter(|(_, pair)| pair == b"\"\"")
            .nth(selector.into())
            .map_or(usize::MAX, |(at, _)| at),
        128.. => usize::from(selector) - 128,
    }
}
