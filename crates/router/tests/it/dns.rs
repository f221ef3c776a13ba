//! Discovery by DNS: addresses and SRV records.

use tidegate_router::control::SourceCondition;

use crate::control_kit::{TestControl, TestFile, eventually};
use crate::stub_dns::{StubDns, StubRecord};
use crate::stub_server::{StubServer, reply};

fn file(dns: &StubDns, endpoint: &str) -> TestFile {
    TestFile::new(&format!(
        "[dns]\nservers = [\"{}\"]\ninterval = \"30ms\"\n[probe]\ninterval = \"20ms\"\n\
         [[model]]\nname = \"m\"\n[[model.endpoint]]\n{endpoint}\n",
        dns.address
    ))
}

#[tokio::test]
async fn every_address_of_a_host_is_an_endpoint() {
    let dns = StubDns::start(&[
        ("llama.test", StubRecord::A([10, 0, 0, 1])),
        ("llama.test", StubRecord::A([10, 0, 0, 2])),
        (
            "llama.test",
            StubRecord::Aaaa([0xfd00, 0, 0, 0, 0, 0, 0, 1]),
        ),
    ])
    .await;
    let fleet = TestControl::start(file(&dns, "dns = \"llama.test:8000\"").input()).unwrap();
    let (one, two) = (
        "http://10.0.0.1:8000#llama.test",
        "http://10.0.0.2:8000#llama.test",
    );
    let six = "http://[fd00::1]:8000#llama.test";
    fleet.wait_endpoints("m", &[one, two, six]).await;
    dns.set(&[("llama.test", StubRecord::A([10, 0, 0, 2]))]);
    fleet.wait_endpoints("m", &[two]).await;
}

#[tokio::test]
async fn a_name_without_records_and_a_silent_server_keep_the_last_list() {
    let dns = StubDns::start(&[("llama.test", StubRecord::A([10, 0, 0, 1]))]).await;
    let fleet = TestControl::start(file(&dns, "dns = \"llama.test:8000\"").input()).unwrap();
    let one = "http://10.0.0.1:8000#llama.test";
    fleet.wait_endpoints("m", &[one]).await;
    dns.set(&[]);
    let condition = || fleet.control.status().sources[0].condition;
    let state = || format!("{:?}", fleet.control.status());
    eventually(|| condition() == SourceCondition::Failing, state).await;
    assert_eq!(fleet.endpoints("m"), [one]);
    dns.set_silent(true);
    let asked = dns.questions();
    eventually(|| dns.questions() > asked, state).await;
    assert_eq!(fleet.endpoints("m"), [one]);
    dns.set_silent(false);
    dns.set(&[("llama.test", StubRecord::A([10, 0, 0, 3]))]);
    fleet
        .wait_endpoints("m", &["http://10.0.0.3:8000#llama.test"])
        .await;
    assert_eq!(condition(), SourceCondition::Current);
}

#[tokio::test]
async fn srv_records_give_hosts_ports_and_weights() {
    let srv = |priority, weight, port, target| StubRecord::Srv {
        priority,
        weight,
        port,
        target,
    };
    let name = "_http._tcp.llama.test";
    let dns = StubDns::start(&[
        (name, srv(1, 30, 8001, "a.test")),
        (name, srv(1, 10, 8002, "b.test")),
        (name, srv(2, 10, 8003, "backup.test")),
        ("a.test", StubRecord::A([10, 0, 0, 1])),
        ("b.test", StubRecord::A([10, 0, 0, 2])),
        ("backup.test", StubRecord::A([10, 0, 0, 3])),
    ])
    .await;
    let srv_endpoint = format!("srv = \"{name}\"");
    let fleet = TestControl::start(file(&dns, &srv_endpoint).input()).unwrap();
    let both = ["http://10.0.0.1:8001#a.test", "http://10.0.0.2:8002#b.test"];
    fleet.wait_endpoints("m", &both).await;
}

/// The probes reach the address and name the host.
#[tokio::test]
async fn requests_to_a_resolved_address_name_the_host() {
    let server = StubServer::start(|_| reply(200, "")).await;
    let dns = StubDns::start(&[("llama.test", StubRecord::A([127, 0, 0, 1]))]).await;
    let port = server.address.port();
    let endpoint = format!("dns = \"llama.test:{port}\"");
    let _fleet = TestControl::start(file(&dns, &endpoint).input()).unwrap();
    eventually(
        || !server.requests().is_empty(),
        || "no probe arrived".to_owned(),
    )
    .await;
    let host = server.requests()[0].headers["host"].clone();
    assert_eq!(host, format!("llama.test:{port}"));
}
