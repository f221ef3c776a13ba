//! Fuzz targets for files.

use std::path::{Component, Path};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use data_url::DataUrl;
use serde_json::value::RawValue;
use tidegate_core::{Account, OutputFile, OutputFileKind};
use tidegate_fuzzing::parts;
use tidegate_net::{Client, Config, Url};

use super::output_files::splice;
use super::{Files, file_name as names};

/// Whatever an address or a type says, the name of its file is one plain name in one folder.
pub fn file_name(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let addresses = [Url::parse(&text), Url::parse(&format!("https://h/{text}"))];
    let names = addresses
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
        let mut place = Path::new(&name).components();
        assert!(
            matches!(place.next(), Some(Component::Normal(only)) if only == name.as_str())
                && place.next().is_none(),
            "{name:?}"
        );
    }
}

/// Small, so that inputs reach the bound.
const MAX_FILE: u64 = 32;

/// Files as a server has them that lets in only small ones.
pub(crate) static FILES: LazyLock<Files> = LazyLock::new(|| Files {
    net: Arc::new(Client::new(Config {
        max_file: MAX_FILE,
        ..Config::default()
    })),
    upload_url: None,
    owner: None,
    file_store: None,
});

/// A text that names a file names one on another host, or holds it and no more than it may.
pub fn data_uri(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    for text in [&*text, &format!("data:{text}")] {
        match FILES.check(&Account::ANONYMOUS, text) {
            Err(reason) => assert!(!reason.is_empty()),
            Ok(bytes) => match DataUrl::process(text) {
                Ok(data) => {
                    let (body, _) = data
                        .decode_to_vec()
                        .expect("what was counted can be decoded");
                    assert_eq!(bytes, body.len() as u64, "counted and decoded differ");
                    assert!(bytes <= MAX_FILE, "{bytes} bytes are let in");
                    let mime = data.mime_type();
                    assert!(
                        !names::from_mime(&format!("{}/{}", mime.type_, mime.subtype))
                            .contains('/')
                    );
                }
                Err(_) => {
                    let url = Url::parse(text).expect("what is not data is an address");
                    assert!(
                        bytes == 0 && matches!(url.scheme(), "http" | "https") && url.has_host(),
                        "{url}"
                    );
                }
            },
        }
    }
}

/// Addresses in the place of files leave JSON what it is: JSON, with everything else as it was.
///
/// The first part is an output, each other one a file: a byte for the place, then its address.
pub fn splice_files(input: &[u8]) {
    let mut parts = parts(input);
    let json = Bytes::copy_from_slice(parts.next().unwrap_or_default());
    if serde_json::from_slice::<&RawValue>(&json).is_err() {
        return;
    }
    let (mut files, mut addresses) = (Vec::new(), Vec::new());
    for part in parts {
        let Some((place, address)) = part.split_first() else {
            continue;
        };
        files.push(OutputFile {
            path: "/f".into(),
            mime_type: None,
            offset: offset(&json, *place),
            kind: OutputFileKind::User,
        });
        addresses.push(String::from_utf8_lossy(address).into_owned());
    }
    let Some(spliced) = splice(&json, &files, &addresses) else {
        return;
    };
    serde_json::from_slice::<&RawValue>(&spliced).expect("JSON stays JSON");
    let quoted: usize = addresses
        .iter()
        .map(|address| serde_json::json!(address).to_string().len())
        .sum();
    assert_eq!(spliced.len() + 2 * files.len(), json.len() + quoted);
}

/// The nth pair of quotes, or for large numbers any place, also one that is not there.
fn offset(json: &[u8], place: u8) -> usize {
    match place {
        0..128 => json
            .windows(2)
            .enumerate()
            .filter(|(_, pair)| pair == b"\"\"")
            .nth(place.into())
            .map_or(usize::MAX, |(at, _)| at),
        128.. => usize::from(place) - 128,
    }
}
