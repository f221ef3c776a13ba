//! Noticing callers that have vanished without a word: a machine that lost its power, a cable, a
//! firewall that forgot. Their waiting requests are canceled, as if they had hung up.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpListener;

/// A silent caller is asked after this time whether it is there,
const IDLE: Duration = Duration::from_secs(15);
/// again after this,
const INTERVAL: Duration = Duration::from_secs(10);
/// and so often.
const PROBES: u32 = 3;
/// What is sent must be taken within this time. It also ends the wait for a caller that does not read,
/// and is the longest that a silent one can be gone without being noticed.
const UNACKNOWLEDGED: Duration = Duration::from_secs(60);

/// Sets up the sockets that will be accepted: they inherit these options from the one that listens.
pub(super) fn enable(listener: &TcpListener) -> io::Result<()> {
    let socket = SockRef::from(listener);
    socket.set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(IDLE)
            .with_interval(INTERVAL)
            .with_retries(PROBES),
    )?;
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
    // The first token of a stream must not wait for a second one.
    socket.set_tcp_nodelay(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn accepted_sockets_notice_a_vanished_caller() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        enable(&listener).unwrap();
        let _caller = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let socket = SockRef::from(&accepted);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), IDLE);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), INTERVAL);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), PROBES);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(UNACKNOWLEDGED));
        assert!(socket.tcp_nodelay().unwrap());
    }
}
