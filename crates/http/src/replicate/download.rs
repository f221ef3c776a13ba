//! The bytes of a file, for who has its address: signed, and good as long as the file.

use std::io::SeekFrom;
use std::ops::RangeInclusive;

use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, RANGE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use ring::hmac;
use tidegate_core::Account;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio_util::io::ReaderStream;
use url::form_urlencoded;

use super::Shared;
use super::origin::Origin;
use super::reply::Trouble;

/// Signs the addresses of files.
pub struct Signer(hmac::Key);

impl Signer {
    /// Whoever knows the secret can read every file whose id they know.
    pub fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// The address of the bytes of a file.
    pub(super) fn address(&self, origin: &Origin, owner: &Account, id: &str, expires_at: Timestamp) -> String {
        let (owner, expiry) = (name_of(owner), expires_at.as_second().to_string());
        let signature = STANDARD.encode(hmac::sign(&self.0, signed(owner, id, &expiry).as_bytes()));
        let mut url = origin.url(&["v1", "files", id, "download"]);
        url.query_pairs_mut().append_pair("owner", owner).append_pair("expiry", &expiry).append_pair("signature", &signature);
        url.into()
    }

    /// Whose file it is, if we have signed this and it is still good.
    fn owner(&self, id: &str, query: &str, now: Timestamp) -> Option<Account> {
        let value = |wanted: &str| form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == wanted).map(|(_, value)| value);
        let (owner, expiry, signature) = (value("owner")?, value("expiry")?, value("signature")?);
        let signature = STANDARD.decode(signature.as_bytes()).ok()?;
        hmac::verify(&self.0, signed(&owner, id, &expiry).as_bytes(), &signature).ok()?;
        if expiry.parse::<i64>().ok()? <= now.as_second() {
            return None;
        }
        if owner.is_empty() { Some(Account::ANONYMOUS) } else { Account::parse(&owner).ok() }
    }
}

/// The account of everybody has no name, so that nobody can be called like it.
fn name_of(account: &Account) -> &str {
    if account.is_anonymous() { "" } else { account.as_str() }
}

fn signed(owner: &str, id: &str, expiry: &str) -> String {
    format!("{owner} {id} {expiry}")
}

/// `GET /v1/files/{id}/download`
pub(super) async fn download(
    State(face): State<Shared>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Trouble> {
    let (uploads, signer) = face.files()?;
    let owner = signer.owner(&id, &query.unwrap_or_default(), Timestamp::now()).ok_or(Trouble::Unknown("file"))?;
    let file = uploads.get(&owner, &id).ok_or(Trouble::Unknown("file"))?;
    let mut bytes = match tokio::fs::File::open(uploads.path_of(&file)).await {
        Ok(bytes) => bytes,
        // Removed a moment ago.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(Trouble::Unknown("file")),
        Err(error) => return Err(Trouble::Disk(error)),
    };
    let asked = headers.get(RANGE).and_then(|range| range.to_str().ok()).map_or(Part::Whole, |range| part(range, file.size));
    let (status, first, length) = match &asked {
        Part::Whole => (StatusCode::OK, 0, file.size),
        Part::Some(range) => (StatusCode::PARTIAL_CONTENT, *range.start(), range.end() - range.start() + 1),
        Part::Outside => (StatusCode::RANGE_NOT_SATISFIABLE, 0, 0),
    };
    bytes.seek(SeekFrom::Start(first)).await.map_err(Trouble::Disk)?;
    let mut response = Response::new(Body::from_stream(ReaderStream::new(bytes.take(length))));
    *response.status_mut() = status;
    let to = response.headers_mut();
    let content_type = HeaderValue::from_str(&file.content_type);
    to.insert(CONTENT_TYPE, content_type.unwrap_or(HeaderValue::from_static("application/octet-stream")));
    to.insert(CONTENT_LENGTH, length.into());
    to.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    to.extend(HeaderValue::try_from(format!("\"{}\"", file.md5)).map(|etag| (ETAG, etag)));
    // A page of a stranger must not run in our name.
    to.insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    to.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let range = match &asked {
        Part::Whole => None,
        Part::Some(range) => Some(format!("bytes {}-{}/{}", range.start(), range.end(), file.size)),
        Part::Outside => Some(format!("bytes */{}", file.size)),
    };
    to.extend(range.and_then(|range| Some((CONTENT_RANGE, HeaderValue::try_from(range).ok()?))));
    Ok(response)
}

/// What of a file is wanted.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    Whole,
    Some(RangeInclusive<u64>),
    Outside,
}

/// One range of bytes; whoever asks for several, or for something else, gets everything.
fn part(range: &str, size: u64) -> Part {
    let Some((first, last)) = range.strip_prefix("bytes=").and_then(|range| range.trim().split_once('-')) else { return Part::Whole };
    let range = match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) if first > last => return Part::Whole,
        (Ok(first), Ok(last)) => first..=last.min(size.saturating_sub(1)),
        (Ok(first), Err(_)) if last.is_empty() => first..=size.saturating_sub(1),
        (Err(_), Ok(0)) if first.is_empty() => return Part::Outside,
        (Err(_), Ok(count)) if first.is_empty() => size.saturating_sub(count)..=size.saturating_sub(1),
        _ => return Part::Whole,
    };
    if *range.start() < size { Part::Some(range) } else { Part::Outside }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_good_for_one_file_until_its_time() {
        let (signer, expires_at) = (Signer::new(b"secret"), Timestamp::from_second(1000).unwrap());
        let before = Timestamp::from_second(999).unwrap();
        let origin = Origin::parse("https://h").unwrap();
        for owner in [Account::ANONYMOUS, Account::parse("ann").unwrap()] {
            let address = signer.address(&origin, &owner, "abc", expires_at);
            let query = address.split_once('?').unwrap().1;
            assert_eq!(signer.owner("abc", query, before), Some(owner));
            assert_eq!(signer.owner("abc", query, expires_at), None, "too late");
            assert_eq!(signer.owner("abd", query, before), None, "another file");
            assert_eq!(signer.owner("abc", &query.replace("expiry=1000", "expiry=9000"), before), None, "another time");
            assert_eq!(signer.owner("abc", &query.replace("owner=", "owner=b"), before), None, "another owner");
            assert_eq!(Signer::new(b"other").owner("abc", query, before), None, "another secret");
        }
        assert_eq!(signer.owner("abc", "", before), None);
    }

    #[test]
    fn ranges() {
        for (range, want) in [
            ("bytes=0-4", Part::Some(0..=4)),
            ("bytes=5-", Part::Some(5..=9)),
            ("bytes=5-99", Part::Some(5..=9)),
            ("bytes=-3", Part::Some(7..=9)),
            ("bytes=-99", Part::Some(0..=9)),
            ("bytes=10-", Part::Outside),
            ("bytes=-0", Part::Outside),
            ("bytes=4-1", Part::Whole),
            ("bytes=0-1,3-4", Part::Whole),
            ("lines=0-1", Part::Whole),
            ("bytes=", Part::Whole),
        ] {
            assert_eq!(part(range, 10), want, "{range}");
        }
        assert_eq!(part("bytes=0-", 0), Part::Outside);
    }
}
