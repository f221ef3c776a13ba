//! Fuzz targets for files.

use std::path::{Component, Path};

use bytes::Bytes;
use serde_json::value::RawValue;
use tidegate_core::{OutputFile, OutputFileKind};
use tidegate_fuzzing::parts;
use tidegate_net::Url;

use super::name;
use super::outgoing::splice;

/// Whatever an address or a type says, the name of its file is one plain name in one folder.
pub fn file_name(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let addresses = [Url::parse(&text), Url::parse(&format!("https://h/{text}"))];
    let names = addresses.iter().flatten().map(name::of_url).chain([name::of_mime(&text)]);
    for name in names {
        assert!((1..=200).contains(&name.len()), "{} bytes", name.len());
        assert!(!name.chars().any(|c| c.is_control() || c == '/'), "{name:?}");
        let mut place = Path::new(&name).components();
        assert!(matches!(place.next(), Some(Component::Normal(only)) if only == name.as_str()) && place.next().is_none(), "{name:?}");
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
        let Some((place, address)) = part.split_first() else { continue };
        files.push(OutputFile { path: "/f".into(), mime_type: None, offset: offset(&json, *place), kind: OutputFileKind::User });
        addresses.push(String::from_utf8_lossy(address).into_owned());
    }
    let Some(spliced) = splice(&json, &files, &addresses) else { return };
    serde_json::from_slice::<&RawValue>(&spliced).expect("JSON stays JSON");
    let quoted: usize = addresses.iter().map(|address| serde_json::json!(address).to_string().len()).sum();
    assert_eq!(spliced.len() + 2 * files.len(), json.len() + quoted);
}

/// The nth pair of quotes, or for large numbers any place, also one that is not there.
fn offset(json: &[u8], place: u8) -> usize {
    match place {
        0..128 => json.windows(2).enumerate().filter(|(_, pair)| pair == b"\"\"").nth(place.into()).map_or(usize::MAX, |(at, _)| at),
        128.. => usize::from(place) - 128,
    }
}
