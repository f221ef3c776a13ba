//! Passes the bytes of a WebSocket connection in both directions, and closes it properly at its maximum
//! duration or when the backend goes away.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio_util::sync::CancellationToken;

use super::websocket_frames::{CloseCode, FrameTracker, Sender, close_frame};

/// How much is read at once.
const BUFFER: usize = 16 * 1024;
/// How long the other side may take to end after one side has.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The limits of a connection.
#[derive(Debug, Clone)]
pub(super) struct RelayLimits {
    /// How long it may last.
    pub(super) max_duration: Duration,
    /// Cancelled when the router shuts down.
    pub(super) close: CancellationToken,
}

/// Why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RelayEnd {
    /// Both sides have closed it.
    Closed,
    /// It has lasted for the maximum duration.
    MaxDuration,
    /// The router shuts down.
    ShuttingDown,
    /// One side went away without closing it.
    Lost,
}

/// Why a direction has no more frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PassEnd {
    /// The sender has closed the connection with a frame.
    CloseFrame,
    /// The sender has gone.
    Gone,
}

/// One direction of a connection.
struct Direction<R, W> {
    from: R,
    to: W,
    frames: FrameTracker,
    /// Whether bytes were read and not all of them written.
    is_writing: bool,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Direction<R, W> {
    fn new(from: R, to: W) -> Self {
        Self {
            from,
            to,
            frames: FrameTracker::default(),
            is_writing: false,
        }
    }

    /// Passes bytes until the sender ends.
    async fn pass(&mut self) -> PassEnd {
        let mut buffer = vec![0; BUFFER];
        loop {
            let read = match self.from.read(&mut buffer).await {
                Ok(0) | Err(_) => return PassEnd::Gone,
                Ok(read) => &buffer[..read],
            };
            self.is_writing = true;
            if self.to.write_all(read).await.is_err() || self.to.flush().await.is_err() {
                return PassEnd::Gone;
            }
            self.is_writing = false;
            self.frames.follow(read);
            if self.frames.has_closed() && self.frames.is_between_frames() {
                return PassEnd::CloseFrame;
            }
        }
    }

    /// Sends a close frame, if the receiver can tell it from the frames before.
    async fn close(&mut self, code: CloseCode, sender: Sender) {
        if !self.is_writing && self.frames.is_between_frames() && !self.frames.has_closed() {
            // Ignored: the receiver may have gone.
            self.to.write_all(&close_frame(code, sender)).await.ok();
            self.to.flush().await.ok();
        }
    }
}

/// Relays a connection until it has ended.
pub(super) async fn relay<C, U>(client: C, upstream: U, limits: RelayLimits) -> RelayEnd
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
{
    let (client_reader, client_writer) = split(client);
    let (upstream_reader, upstream_writer) = split(upstream);
    let mut up = Direction::new(client_reader, upstream_writer);
    let mut down = Direction::new(upstream_reader, client_writer);
    let end = tokio::select! {
        end = pass_both(&mut up, &mut down) => end,
        () = tokio::time::sleep(limits.max_duration) => RelayEnd::MaxDuration,
        () = limits.close.cancelled() => RelayEnd::ShuttingDown,
    };
    let code = match end {
        RelayEnd::Closed | RelayEnd::Lost => None,
        RelayEnd::MaxDuration => Some(CloseCode::MaxDuration),
        RelayEnd::ShuttingDown => Some(CloseCode::ShuttingDown),
    };
    if let Some(code) = code {
        limited(down.close(code, Sender::Server)).await;
        limited(up.close(code, Sender::Client)).await;
        limited(pass_both(&mut up, &mut down)).await;
    }
    limited(down.to.shutdown()).await;
    limited(up.to.shutdown()).await;
    end
}

/// Waits for a part of the close. Its result does not matter: the sides may not answer, and the sockets are
/// closed anyway.
async fn limited<T>(work: impl Future<Output = T>) {
    tokio::time::timeout(CLOSE_TIMEOUT, work).await.ok();
}

/// Passes bytes until one side ends, and then what the other side still sends.
async fn pass_both<R1, W1, R2, W2>(
    up: &mut Direction<R1, W1>,
    down: &mut Direction<R2, W2>,
) -> RelayEnd
where
    R1: AsyncRead + Unpin,
    W1: AsyncWrite + Unpin,
    R2: AsyncRead + Unpin,
    W2: AsyncWrite + Unpin,
{
    // The direction that has not ended goes on where it is: bytes that it has read are not lost. The other
    // side answers with a close frame or its end, or not at all.
    let (mut passing_up, mut passing_down) = (Box::pin(up.pass()), Box::pin(down.pass()));
    tokio::select! {
        end = &mut passing_up => {
            drop(passing_up);
            if end == PassEnd::Gone {
                limited(up.to.shutdown()).await; // The backend may have gone too.
            }
            limited(passing_down).await;
        }
        end = &mut passing_down => {
            drop(passing_down);
            if end == PassEnd::Gone {
                // A backend that goes away without a close frame is reported to the client.
                limited(down.close(CloseCode::BackendLost, Sender::Server)).await;
                limited(down.to.shutdown()).await;
            }
            limited(passing_up).await;
        }
    }
    match up.frames.has_closed() || down.frames.has_closed() {
        true => RelayEnd::Closed,
        false => RelayEnd::Lost,
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;
    use tokio::task::JoinSet;

    use super::*;

    fn limits(max_duration: Duration) -> RelayLimits {
        RelayLimits {
            max_duration,
            close: CancellationToken::new(),
        }
    }

    const HOUR: Duration = Duration::from_secs(3600);
    /// A text frame `hi` of a server.
    const TEXT: &[u8] = b"\x81\x02hi";

    #[tokio::test(start_paused = true)]
    async fn a_lost_backend_is_reported_with_a_close_frame() {
        let (mut client, client_side) = duplex(1024);
        let (mut backend, backend_side) = duplex(1024);
        let mut tasks = JoinSet::new();
        tasks.spawn(relay(client_side, backend_side, limits(HOUR)));
        backend.write_all(TEXT).await.unwrap();
        drop(backend);
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.unwrap();
        assert_eq!(&received[..TEXT.len()], TEXT);
        assert_eq!(received[TEXT.len()], 0x88);
        assert_eq!(
            &received[TEXT.len() + 2..TEXT.len() + 4],
            1014_u16.to_be_bytes()
        );
        drop(client);
        assert_eq!(tasks.join_next().await.unwrap().unwrap(), RelayEnd::Lost);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_at_its_maximum_duration() {
        let (mut client, client_side) = duplex(1024);
        let (_backend, backend_side) = duplex(1024);
        let mut tasks = JoinSet::new();
        let limits = limits(Duration::from_secs(2));
        tasks.spawn(relay(client_side, backend_side, limits));
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.unwrap();
        assert_eq!(&received[2..4], 1001_u16.to_be_bytes());
        let end = tasks.join_next().await.unwrap().unwrap();
        assert_eq!(end, RelayEnd::MaxDuration);
    }

    #[tokio::test(start_paused = true)]
    async fn both_sides_are_told_that_the_router_shuts_down() {
        let (mut client, client_side) = duplex(1024);
        let (mut backend, backend_side) = duplex(1024);
        let limits = limits(HOUR);
        let close = limits.close.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(relay(client_side, backend_side, limits));
        close.cancel();
        let (mut to_client, mut to_backend) = ([0; 4], [0; 8]);
        client.read_exact(&mut to_client).await.unwrap();
        backend.read_exact(&mut to_backend).await.unwrap();
        assert_eq!(to_client[2..], 1001_u16.to_be_bytes());
        assert_eq!(to_backend[6..], 1001_u16.to_be_bytes(), "after the mask");
        drop((client, backend));
        let end = tasks.join_next().await.unwrap().unwrap();
        assert_eq!(end, RelayEnd::ShuttingDown);
    }

    #[tokio::test]
    async fn bytes_pass_in_both_directions_unchanged() {
        let (mut client, client_side) = duplex(64);
        let (mut backend, backend_side) = duplex(64);
        let mut tasks = JoinSet::new();
        tasks.spawn(relay(client_side, backend_side, limits(HOUR)));
        let sent: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        let mut received = vec![0; sent.len()];
        let (written, read) =
            tokio::join!(client.write_all(&sent), backend.read_exact(&mut received));
        written.unwrap();
        read.unwrap();
        assert!(received == sent);
        drop((client, backend));
        tasks.join_next().await.unwrap().unwrap();
    }
}
