//! Discovery by Consul: its HTTP protocol with blocking queries.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tidegate_router::control::SourceCondition;
use tokio::sync::watch;

use crate::control_kit::{TestControl, TestFile, eventually};
use crate::stub_server::{StubRequest, StubResponse, StubServer, reply};

/// An agent with one service. A query with the current index waits for a change.
struct StubConsul {
    server: StubServer,
    state: Arc<watch::Sender<ConsulState>>,
}

#[derive(Clone)]
struct ConsulState {
    index: u64,
    status: u16,
    instances: Vec<String>,
}

impl StubConsul {
    async fn start(instances: &[String]) -> Self {
        Self::bind("127.0.0.1:0", 10, instances).await
    }

    async fn bind(address: &str, index: u64, instances: &[String]) -> Self {
        let state = Arc::new(watch::Sender::new(ConsulState {
            index,
            status: 200,
            instances: instances.to_vec(),
        }));
        let answering = state.clone();
        let handler = move |request| answer(request, answering.clone()).boxed();
        let server = StubServer::bind(address, handler).await;
        Self { server, state }
    }

    fn set(&self, instances: &[String]) {
        self.state.send_modify(|state| {
            state.index += 1;
            state.instances = instances.to_vec();
        });
    }

    fn set_status(&self, status: u16) {
        self.state.send_modify(|state| {
            state.index += 1;
            state.status = status;
        });
    }

    fn file(&self) -> TestFile {
        TestFile::new(&format!(
            "[consul]\nurl = \"{}\"\ntoken = \"s3cret\"\ndatacenter = \"ams\"\n\
             [[model]]\nname = \"m\"\n[[model.endpoint]]\nconsul = \"llama\"\npermits = 3\n",
            self.server.url()
        ))
    }
}

async fn answer(request: StubRequest, state: Arc<watch::Sender<ConsulState>>) -> StubResponse {
    let index = request.path.split_once("&index=");
    let index = index.and_then(|(_, rest)| rest.split('&').next()?.parse::<u64>().ok());
    let mut changes = state.subscribe();
    let changed = changes.wait_for(|state| index.is_none_or(|index| index != state.index));
    let state = changed.await.expect("the agent runs").clone();
    let mut response = reply(state.status, &format!("[{}]", state.instances.join(",")));
    let index = state.index.to_string().parse().expect("a number");
    response.headers_mut().insert("x-consul-index", index);
    response
}

/// An instance as Consul 1.8 prints it, without the parts that say nothing about its address.
fn instance(address: &str, port: u16, meta: &str) -> String {
    format!(
        r#"{{"Node":{{"ID":"1","Node":"gpu-1","Address":"10.1.0.1","Datacenter":"ams"}},
            "Service":{{"ID":"llama-{port}","Service":"llama","Tags":[],"Address":"{address}",
            "Meta":{meta},"Port":{port},"Weights":{{"Passing":1,"Warning":1}}}},
            "Checks":[{{"Status":"passing"}}]}}"#
    )
}

#[tokio::test]
async fn instances_of_a_service_come_and_go() {
    let consul = StubConsul::start(&[instance("127.0.0.1", 1, "null")]).await;
    let fleet = TestControl::start(consul.file().input()).unwrap();
    fleet.control.ready().await;
    fleet.wait_endpoints("m", &["http://127.0.0.1:1"]).await;
    consul.set(&[
        instance("127.0.0.1", 1, "{}"),
        instance("", 2, r#"{"permits":"7","weight":"2.5","kind":"tgi"}"#),
    ]);
    let both = ["http://10.1.0.1:2", "http://127.0.0.1:1"];
    fleet.wait_endpoints("m", &both).await;
    let limits = fleet.limits();
    assert_eq!(limits["http://10.1.0.1:2"], 7);
    assert_eq!(limits["http://127.0.0.1:1"], 3);
    // A service without healthy instances has none.
    consul.set(&[]);
    fleet.wait_endpoints("m", &[] as &[&str]).await;

    let requests = consul.server.requests();
    assert_eq!(
        requests[0].path,
        "/v1/health/service/llama?passing=1&dc=ams"
    );
    assert!(requests[1].path.contains("&index=10&wait=55s"));
    assert_eq!(requests[0].headers["x-consul-token"], "s3cret");
}

#[tokio::test]
async fn the_last_list_survives_errors_and_the_loss_of_the_agent() {
    let instances = [instance("127.0.0.1", 1, "null")];
    let consul = StubConsul::start(&instances).await;
    let fleet = TestControl::start(consul.file().input()).unwrap();
    fleet.wait_endpoints("m", &["http://127.0.0.1:1"]).await;
    consul.set_status(500);
    let condition = || fleet.control.status().sources[0].condition;
    let state = || format!("{:?}", fleet.control.status());
    eventually(|| condition() == SourceCondition::Failing, state).await;
    let StubConsul { server, .. } = consul;
    let address = server.address.to_string();
    drop(server);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(fleet.endpoints("m"), ["http://127.0.0.1:1"]);
    let status = format!("{:?}", fleet.control.status());
    assert!(!status.contains("s3cret"), "{status}");
    // The agent is back, with smaller indexes.
    let back = [instance("127.0.0.1", 2, "null")];
    let consul = StubConsul::bind(&address, 2, &back).await;
    fleet.wait_endpoints("m", &["http://127.0.0.1:2"]).await;
    assert_eq!(condition(), SourceCondition::Current);
    consul.set(&instances);
    fleet.wait_endpoints("m", &["http://127.0.0.1:1"]).await;
}

#[tokio::test]
async fn a_reload_with_other_settings_keeps_the_list_until_the_first_answer() {
    let instances = [instance("127.0.0.1", 1, "null")];
    let consul = StubConsul::start(&instances).await;
    let file = consul.file();
    let fleet = TestControl::start(file.input()).unwrap();
    fleet.wait_endpoints("m", &["http://127.0.0.1:1"]).await;
    let text = std::fs::read_to_string(file.path()).unwrap();
    // No agent answers at this port.
    let text = text.replace(&consul.server.url(), "http://127.0.0.1:9");
    file.write(&text);
    fleet.control.reload().await.unwrap();
    assert_eq!(fleet.endpoints("m"), ["http://127.0.0.1:1"]);
}
