//! TCP keepalive: detects clients that disappear without closing the connection, such as a machine
//! that lost power or a firewall that dropped its state. Their waiting requests are canceled, as if
//! the clients had disconnected.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpListener;

/// How long a client may be silent before the first probe.
const IDLE: Duration = Duration::from_secs(15);
/// The time between two probes.
const INTERVAL: Duration = Duration::from_secs(10);
/// How many probes may stay unanswered.
const PROBES: u32 = 3;
/// How long sent data may stay unacknowledged. It also ends the wait for a client that does not
/// read, and bounds how long a vanished client can stay undetected.
const UNACKNOWLEDGED: Duration = Duration::from_secs(60);

/// Configures the sockets that will be accepted: they inherit these options from the listener.
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
    async fn accepted_sockets_inherit_keepalive() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        enable(&listener).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap())
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
