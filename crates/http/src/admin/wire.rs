//! The answers of the operator's face.

use serde::Serialize;
use tidegate_service::{Attempt, DeliveryRecord, DeliveryState, WebhookEvent};

#[derive(Debug, Serialize)]
pub(super) struct Deliveries<'a> {
    pub(super) deliveries: Vec<Delivery<'a>>,
}

/// One message.
#[derive(Debug, Serialize)]
pub(super) struct Delivery<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    account: Option<&'a str>,
    attempts: Vec<Try<'a>>,
    created_at: String,
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    given_up: Option<&'a str>,
    host: &'a str,
    id: &'a str,
    job: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_attempt_at: Option<String>,
    state: &'static str,
}

/// One time that it was sent: a status, or why there was none.
#[derive(Debug, Serialize)]
struct Try<'a> {
    at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    took_s: f64,
}

impl<'a> From<&'a DeliveryRecord> for Delivery<'a> {
    fn from(record: &'a DeliveryRecord) -> Self {
        Self {
            account: (!record.account.is_anonymous()).then(|| record.account.as_str()),
            attempts: record.attempts.iter().map(Into::into).collect(),
            created_at: record.created_at.to_string(),
            event: event(record.event),
            given_up: record.given_up.as_deref(),
            host: &record.host,
            id: &record.id,
            job: record.job.as_str(),
            next_attempt_at: record.next_attempt_at.map(|at| at.to_string()),
            state: state(record.state),
        }
    }
}

impl<'a> From<&'a Attempt> for Try<'a> {
    fn from(attempt: &'a Attempt) -> Self {
        Self {
            at: attempt.at.to_string(),
            error: attempt.result.as_ref().err().map(String::as_str),
            status: attempt.result.as_ref().ok().copied(),
            took_s: attempt.took.as_secs_f64(),
        }
    }
}

fn event(event: WebhookEvent) -> &'static str {
    match event {
        WebhookEvent::Start => "start",
        WebhookEvent::Output => "output",
        WebhookEvent::Logs => "logs",
        WebhookEvent::Completed => "completed",
    }
}

fn state(state: DeliveryState) -> &'static str {
    match state {
        DeliveryState::Sending => "sending",
        DeliveryState::Delivered => "delivered",
        DeliveryState::Retrying => "retrying",
        DeliveryState::Failed => "failed",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;
    use tidegate_core::{Account, JobId};

    use super::*;

    #[test]
    fn a_message_with_its_attempts() {
        let at = Timestamp::from_second(1_700_000_000).unwrap();
        let record = DeliveryRecord {
            id: "msg_1".to_owned(),
            account: Account::parse("team").unwrap(),
            job: JobId::parse("a").unwrap(),
            event: WebhookEvent::Completed,
            host: "example.com:8080".to_owned(),
            created_at: at,
            state: DeliveryState::Retrying,
            given_up: None,
            attempts: vec![
                Attempt { at, took: Duration::from_millis(1500), result: Ok(500) },
                Attempt { at, took: Duration::from_secs(30), result: Err("could not reach `example.com:8080`".to_owned()) },
            ],
            next_attempt_at: Some(at),
        };
        insta::assert_json_snapshot!(Delivery::from(&record));
    }
}
