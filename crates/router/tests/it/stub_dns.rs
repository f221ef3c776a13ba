//! A name server on UDP that knows A, AAAA and SRV records.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::net::UdpSocket;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// A record.
#[derive(Debug, Clone, Copy)]
pub(crate) enum StubRecord {
    A([u8; 4]),
    Aaaa([u16; 8]),
    Srv {
        priority: u16,
        weight: u16,
        port: u16,
        target: &'static str,
    },
}

/// A name server; it ends when it is dropped.
pub(crate) struct StubDns {
    pub(crate) address: SocketAddr,
    zone: Arc<Mutex<Zone>>,
    _stop: DropGuard,
}

#[derive(Default)]
struct Zone {
    records: Vec<(String, StubRecord)>,
    silent: bool,
    questions: usize,
}

impl StubDns {
    pub(crate) async fn start(records: &[(&str, StubRecord)]) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        let stop = CancellationToken::new();
        let dns = Self {
            address: socket.local_addr().expect("an address"),
            zone: Arc::default(),
            _stop: stop.clone().drop_guard(),
        };
        dns.set(records);
        let serving = serve(socket, dns.zone.clone());
        TaskTracker::new().spawn(stop.run_until_cancelled_owned(serving));
        dns
    }

    /// Replaces all records.
    pub(crate) fn set(&self, records: &[(&str, StubRecord)]) {
        let records = records
            .iter()
            .map(|(name, record)| ((*name).to_owned(), *record));
        self.zone.lock().expect("not poisoned").records = records.collect();
    }

    /// Stops or starts to answer.
    pub(crate) fn set_silent(&self, silent: bool) {
        self.zone.lock().expect("not poisoned").silent = silent;
    }

    /// The number of questions so far.
    pub(crate) fn questions(&self) -> usize {
        self.zone.lock().expect("not poisoned").questions
    }
}

async fn serve(socket: UdpSocket, zone: Arc<Mutex<Zone>>) {
    let mut packet = [0; 1500];
    loop {
        let Ok((length, client)) = socket.recv_from(&mut packet).await else {
            continue;
        };
        let answer = {
            let mut zone = zone.lock().expect("not poisoned");
            zone.questions += 1;
            (!zone.silent).then(|| answer(&packet[..length], &zone.records))
        };
        if let Some(answer) = answer {
            socket.send_to(&answer, client).await.expect("sent");
        }
    }
}

/// The answer to a packet with one question (RFC 1035).
fn answer(question: &[u8], records: &[(String, StubRecord)]) -> Vec<u8> {
    let mut at = 12;
    let mut labels = Vec::new();
    while question[at] != 0 {
        let length = usize::from(question[at]);
        let label = &question[at + 1..at + 1 + length];
        labels.push(String::from_utf8_lossy(label).to_lowercase());
        at += 1 + length;
    }
    let question_end = at + 5;
    let wanted = u16::from_be_bytes([question[at + 1], question[at + 2]]);
    let name = labels.join(".");
    let known = records.iter().filter(|(other, _)| *other == name);
    let is_known = known.clone().next().is_some();
    let answers: Vec<_> = known
        .map(|(_, record)| data(record))
        .filter(|(kind, _)| *kind == wanted)
        .collect();
    let mut packet = question[..2].to_vec();
    // A response with recursion; 3 is NXDOMAIN.
    packet.extend([0x85, if is_known { 0x80 } else { 0x83 }]);
    packet.extend([0, 1]);
    packet.extend(u16::try_from(answers.len()).expect("few").to_be_bytes());
    packet.extend([0, 0, 0, 0]);
    packet.extend(&question[12..question_end]);
    for (kind, data) in answers {
        // The name is the one of the question, the class IN, the TTL 0.
        packet.extend([0xc0, 12]);
        packet.extend(kind.to_be_bytes());
        packet.extend([0, 1, 0, 0, 0, 0]);
        packet.extend(u16::try_from(data.len()).expect("short").to_be_bytes());
        packet.extend(data);
    }
    packet
}

/// The type and the data of a record.
fn data(record: &StubRecord) -> (u16, Vec<u8>) {
    match record {
        StubRecord::A(address) => (1, address.to_vec()),
        StubRecord::Aaaa(address) => (
            28,
            address.iter().flat_map(|part| part.to_be_bytes()).collect(),
        ),
        StubRecord::Srv {
            priority,
            weight,
            port,
            target,
        } => {
            let mut data = Vec::new();
            data.extend(
                [priority, weight, port]
                    .iter()
                    .flat_map(|part| part.to_be_bytes()),
            );
            for label in target.split('.') {
                data.push(u8::try_from(label.len()).expect("short"));
                data.extend(label.as_bytes());
            }
            data.push(0);
            (33, data)
        }
    }
}
