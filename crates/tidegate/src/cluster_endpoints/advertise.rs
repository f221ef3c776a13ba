//! The address at which the other API processes of a cluster reach this one.

use std::net::IpAddr;

use tidegate_net::Url;

use crate::usage_error::UsageError;

/// The URL of `--advertise`, or the address that the server listens on. `None` if that is not the address of
/// one machine: then this process owns no endpoints.
pub(super) fn advertised_url(
    flag: Option<&Url>,
    listens_at: &str,
    endpoints: &[String],
) -> Result<Option<Url>, UsageError> {
    if let Some(url) = flag {
        return Ok(Some(url.clone()));
    }
    let url = Url::parse(listens_at)
        .ok()
        .filter(|url| !is_any_address(url));
    if url.is_none() && !endpoints.is_empty() {
        return Err(UsageError::new(format!(
            "--endpoint needs --advertise: the server listens on all addresses ({listens_at}), and one API process \
             forwards the requests for an endpoint to another"
        ))
        .hint(
            "give the URL at which the other API processes reach this one, such as --advertise http://10.0.0.5:5000, \
             or an address of the machine with --host",
        ));
    }
    Ok(url)
}

fn is_any_address(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.parse()
        .is_ok_and(|address: IpAddr| address.to_canonical().is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_the_address_that_the_server_listens_on() {
        let url = advertised_url(None, "http://192.0.2.1:5000", &["echo".to_owned()]);
        assert_eq!(
            url.unwrap().map(String::from),
            Some("http://192.0.2.1:5000/".to_owned())
        );
    }

    #[test]
    fn all_addresses_are_not_one() {
        for address in ["http://0.0.0.0:5000", "https://[::]:5000"] {
            assert_eq!(advertised_url(None, address, &[]).unwrap(), None);
            let error = advertised_url(None, address, &["echo".to_owned()]).unwrap_err();
            assert!(error.to_string().contains("--advertise"), "{error}");
            let given = Url::parse("http://api-1:5000").unwrap();
            let used = advertised_url(Some(&given), address, &["echo".to_owned()]);
            assert_eq!(used.unwrap(), Some(given));
        }
    }
}
