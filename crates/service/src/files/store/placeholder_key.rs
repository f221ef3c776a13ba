//! Sealed placeholders: they contain what is needed to render a file, and a signature. A model may print
//! such a text, but it can neither make one nor use that of another job.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use tidegate_core::{Account, JobId};

use super::output_urls::PublishedFile;

/// Separates the two parts of a sealed placeholder.
pub(super) const SEPARATOR: char = '.';

/// Seals placeholders.
pub(super) struct PlaceholderKey(hmac::Key);

impl PlaceholderKey {
    pub(super) fn new(secret: &[u8]) -> Self {
        let derive = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let derived = hmac::sign(&derive, b"tidegate placeholders 1");
        Self(hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()))
    }

    /// The text of a file of this job.
    pub(super) fn seal(&self, account: &Account, job: &JobId, file: &PublishedFile) -> String {
        let claims = serde_json::to_vec(file).expect("the keys of a file are strings");
        let signature = hmac::sign(&self.0, &signed_text(account, job, &claims));
        format!(
            "{}{SEPARATOR}{}",
            URL_SAFE_NO_PAD.encode(&claims),
            URL_SAFE_NO_PAD.encode(signature)
        )
    }

    /// The file of a text that was sealed for this job.
    pub(super) fn open(&self, account: &Account, job: &JobId, text: &str) -> Option<PublishedFile> {
        let (claims, signature) = text.split_once(SEPARATOR)?;
        let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        hmac::verify(&self.0, &signed_text(account, job, &claims), &signature).ok()?;
        serde_json::from_slice(&claims).ok()
    }
}

/// Neither accounts nor ids contain U+0000.
fn signed_text(account: &Account, job: &JobId, claims: &[u8]) -> Vec<u8> {
    let owner = if account.is_anonymous() {
        ""
    } else {
        account.as_str()
    };
    [owner.as_bytes(), job.as_str().as_bytes(), claims].join(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_is_valid_for_its_job_and_secret_only() {
        let (key, ann) = (
            PlaceholderKey::new(b"secret"),
            Account::parse("ann").unwrap(),
        );
        let (job, other) = (JobId::parse("a").unwrap(), JobId::parse("b").unwrap());
        let file = PublishedFile {
            id: "f1".to_owned(),
            name: "é \".png".to_owned(),
            content_type: "image/png".to_owned(),
            size: 7,
            sha256: "00".to_owned(),
        };
        let sealed = key.seal(&ann, &job, &file);
        assert_eq!(key.open(&ann, &job, &sealed), Some(file.clone()));
        assert_eq!(key.open(&ann, &other, &sealed), None);
        assert_eq!(key.open(&Account::ANONYMOUS, &job, &sealed), None);
        assert_eq!(
            PlaceholderKey::new(b"other").open(&ann, &job, &sealed),
            None
        );
        let (claims, _) = sealed.split_once(SEPARATOR).unwrap();
        let forged = PublishedFile {
            sha256: "11".to_owned(),
            ..file
        };
        let signature = key.seal(&ann, &job, &forged);
        let (_, signature) = signature.split_once(SEPARATOR).unwrap();
        for text in [
            format!("{claims}.{signature}"),
            format!("{claims}."),
            ".".to_owned(),
        ] {
            assert_eq!(key.open(&ann, &job, &text), None, "{text}");
        }
    }
}
