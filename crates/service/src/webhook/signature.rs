//! Signatures of webhooks, as defined by the Standard Webhooks specification: receivers verify them
//! with an existing library.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use base64::Engine;
use base64::alphabet;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use ring::hmac;
use tidegate_core::Account;

/// The least number of bytes of a secret.
const MIN_SECRET_LEN: usize = 16;

/// The secrets that sign messages. All clones see a replacement at once.
#[derive(Clone, Default)]
pub struct WebhookSecrets {
    keys: Arc<ArcSwap<Vec<SigningKey>>>,
}

struct SigningKey(Vec<u8>);

/// Why a secret is invalid. The message gives its position, because secrets must not be logged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// The prefix is missing.
    #[error("webhook secret number {0} does not begin with `whsec_`")]
    Prefix(usize),
    /// The rest is not base64.
    #[error("webhook secret number {0} is not base64 after `whsec_`")]
    NotBase64(usize),
    /// The secret is too short to be secure.
    #[error("webhook secret number {0} has fewer than {MIN_SECRET_LEN} bytes")]
    TooShort(usize),
}

impl WebhookSecrets {
    /// Parses secrets separated by white space. The text between `#` and the end of a line is a
    /// comment.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        let words = text
            .lines()
            .filter_map(|line| line.split('#').next())
            .flat_map(str::split_whitespace);
        let keys: Result<Vec<SigningKey>, SecretError> = words
            .enumerate()
            .map(|(i, word)| parse_key(i + 1, word))
            .collect();
        Ok(Self {
            keys: Arc::new(ArcSwap::from_pointee(keys?)),
        })
    }

    /// Whether there are no secrets: then messages are not signed.
    pub fn is_empty(&self) -> bool {
        self.keys.load().is_empty()
    }

    /// Replaces the secrets by those of `other`.
    pub fn replace(&self, other: &Self) {
        self.keys.store(other.keys.load_full());
    }

    /// The first secret, for receivers that verify the messages of all accounts.
    pub fn first(&self) -> Option<String> {
        self.keys.load().first().map(SigningKey::to_string)
    }

    /// The secret of one account, derived from the first one. It cannot sign messages of other
    /// accounts.
    pub fn first_for(&self, account: &Account) -> Option<String> {
        self.keys
            .load()
            .first()
            .map(|key| key.derive(account).to_string())
    }

    /// The signatures of a message, one per secret, because a receiver may know the old or the new
    /// one. Then those with the secrets of the account, unless it is anonymous.
    pub(super) fn sign(
        &self,
        account: &Account,
        id: &str,
        timestamp: i64,
        body: &[u8],
    ) -> Option<String> {
        let keys = self.keys.load();
        let account_signatures = keys
            .iter()
            .filter(|_| !account.is_anonymous())
            .map(|key| key.derive(account).sign(id, timestamp, body));
        let signatures: Vec<String> = keys
            .iter()
            .map(|key| key.sign(id, timestamp, body))
            .chain(account_signatures)
            .collect();
        (!signatures.is_empty()).then(|| signatures.join(" "))
    }
}

impl SigningKey {
    /// Derives the secret of one account. It is deterministic and cannot be reversed.
    fn derive(&self, account: &Account) -> Self {
        let label = format!("webhooks of {account}");
        Self(
            hmac::sign(
                &hmac::Key::new(hmac::HMAC_SHA256, &self.0),
                label.as_bytes(),
            )
            .as_ref()
            .to_vec(),
        )
    }

    fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &self.0));
        context.update(format!("{id}.{timestamp}.").as_bytes());
        context.update(body);
        format!("v1,{}", STANDARD.encode(context.sign()))
    }
}

/// The text form that receivers are configured with.
impl fmt::Display for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "whsec_{}", STANDARD.encode(&self.0))
    }
}

fn parse_key(number: usize, word: &str) -> Result<SigningKey, SecretError> {
    // Some tools omit the padding.
    let lenient =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let text = word
        .strip_prefix("whsec_")
        .ok_or(SecretError::Prefix(number))?;
    let bytes = GeneralPurpose::new(&alphabet::STANDARD, lenient)
        .decode(text)
        .map_err(|_| SecretError::NotBase64(number))?;
    if bytes.len() < MIN_SECRET_LEN {
        Err(SecretError::TooShort(number))
    } else {
        Ok(SigningKey(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn sign(secrets: &WebhookSecrets) -> Option<String> {
        secrets.sign(
            &Account::ANONYMOUS,
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            br#"{"test": 2432232314}"#,
        )
    }

    #[test]
    fn signatures_match_the_specification() {
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(
            sign(&WebhookSecrets::parse(SECRET).unwrap()).unwrap(),
            expected
        );
        let two =
            WebhookSecrets::parse(&format!("# old\n{SECRET} # until May\n\n{SECRET}\n")).unwrap();
        assert_eq!(sign(&two).unwrap(), format!("{expected} {expected}"));
        assert_eq!(sign(&WebhookSecrets::default()), None);
    }

    #[test]
    fn each_account_has_its_own_secret() {
        let secrets = WebhookSecrets::parse(SECRET).unwrap();
        let [ann, bob] = ["ann", "bob"].map(|name| Account::parse(name).unwrap());
        let signed = secrets.sign(&ann, "msg", 1, b"{}").unwrap();
        let by = |secret: Option<String>| {
            WebhookSecrets::parse(&secret.unwrap())
                .unwrap()
                .sign(&Account::ANONYMOUS, "msg", 1, b"{}")
                .unwrap()
        };
        assert_eq!(
            signed,
            format!("{} {}", by(secrets.first()), by(secrets.first_for(&ann)))
        );
        assert!(!signed.contains(&by(secrets.first_for(&bob))));
    }

    #[test]
    fn every_clone_sees_a_replacement() {
        let secrets = WebhookSecrets::default();
        let handle = secrets.clone();
        secrets.replace(&WebhookSecrets::parse(SECRET).unwrap());
        assert!(sign(&handle).is_some());
    }

    #[test]
    fn an_invalid_secret_is_reported_by_position_and_not_shown() {
        let cases = [
            ("hunter2", SecretError::Prefix(1)),
            ("whsec_hunter2!", SecretError::NotBase64(1)),
            ("whsec_aHVudGVyMg==", SecretError::TooShort(1)),
        ];
        for (text, expected) in cases {
            let error = WebhookSecrets::parse(text).err().unwrap();
            assert_eq!(error, expected);
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        assert_eq!(
            WebhookSecrets::parse(&format!("{SECRET} nope")).err(),
            Some(SecretError::Prefix(2))
        );
    }
}
