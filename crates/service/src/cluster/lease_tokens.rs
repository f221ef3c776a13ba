//! Tokens of leases: a director shows one with every call about a job. It names the job and the fence of
//! the lease, and is signed, so no process has to store it.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use tidegate_core::director_api::LeaseToken;
use tidegate_core::leases::HeldLease;

/// Signs and verifies the tokens of leases. All API processes of a cluster have the same secret.
#[derive(Clone)]
pub struct LeaseTokens {
    key: hmac::Key,
}

impl LeaseTokens {
    /// Signs with a key that is derived from the secret of the directors.
    pub fn new(secret: &str) -> Self {
        let derive = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let derived = hmac::sign(&derive, b"tidegate lease tokens 1");
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()),
        }
    }

    /// The token of a lease.
    pub fn sign(&self, lease: &HeldLease) -> LeaseToken {
        let claims = serde_json::to_vec(lease).expect("a lease serializes");
        let signature = hmac::sign(&self.key, &claims);
        LeaseToken(format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(claims),
            URL_SAFE_NO_PAD.encode(signature)
        ))
    }

    /// The lease that a token was signed for; `None` for any other text.
    pub fn verify(&self, token: &LeaseToken) -> Option<HeldLease> {
        let (claims, signature) = token.0.split_once('.')?;
        let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        hmac::verify(&self.key, &claims, &signature).ok()?;
        serde_json::from_slice(&claims).ok()
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::lease::{Fence, Nonce};
    use tidegate_core::leases::JobRef;
    use tidegate_core::{Account, JobId};

    use super::*;

    fn lease(id: &str, attempt: u32) -> HeldLease {
        HeldLease {
            job: JobRef {
                account: Account::ANONYMOUS,
                id: JobId::parse(id).unwrap(),
            },
            fence: Fence {
                attempt,
                nonce: Nonce(7),
            },
        }
    }

    #[test]
    fn a_token_is_valid_for_its_lease_and_secret_only() {
        let tokens = LeaseTokens::new("secret");
        let token = tokens.sign(&lease("a", 1));
        assert_eq!(tokens.verify(&token), Some(lease("a", 1)));
        assert_eq!(LeaseTokens::new("other").verify(&token), None);
        let other = tokens.sign(&lease("a", 2));
        let (claims, _) = other.0.split_once('.').unwrap();
        let (_, signature) = token.0.split_once('.').unwrap();
        for forged in [
            format!("{claims}.{signature}"),
            claims.to_owned(),
            format!("{claims}."),
            String::new(),
            ".".to_owned(),
            "ü.ü".to_owned(),
        ] {
            assert_eq!(tokens.verify(&LeaseToken(forged)), None);
        }
    }
}
