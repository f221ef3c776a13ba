//! A Unix socket that the edge listens on.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, fchmod};
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::UnixListener;

/// The owner and the group of the server may connect.
const MODE: u32 = 0o660;
/// How many connections may wait to be accepted.
const BACKLOG: i32 = 1024;

/// The server cannot listen on a Unix socket.
#[derive(Debug, thiserror::Error)]
pub enum UnixSocketError {
    /// Another process listens on it.
    #[error("another process listens on `{}`", .0.display())]
    InUse(PathBuf),
    /// The path is used by something else.
    #[error("`{}` exists and is not a socket", .0.display())]
    NotASocket(PathBuf),
    /// The system refuses it.
    #[error("failed to listen on `{}`", path.display())]
    System {
        /// The path of the socket.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// A Unix socket that accepts connections. Its file is removed on drop.
#[derive(Debug)]
pub struct UnixSocket {
    pub(super) listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the file, to recognize it on drop.
    file: (u64, u64),
}

impl UnixSocket {
    /// Listens on `path`. A socket file on which no process listens is replaced.
    pub fn bind(path: &Path) -> Result<Self, UnixSocketError> {
        remove_stale(path)?;
        let system = |source| UnixSocketError::System {
            path: path.to_owned(),
            source,
        };
        let listener = listen(path).map_err(system)?;
        let file = std::fs::symlink_metadata(path).map_err(system)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            file: (file.dev(), file.ino()),
        })
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        // Another server may have replaced the file.
        let is_ours = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|file| (file.dev(), file.ino()) == self.file);
        if is_ours && let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "failed to remove the socket");
        }
    }
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    // Before the file exists, so that it never has other permissions than these.
    fchmod(&socket, Mode::from_raw_mode(MODE))?;
    socket.bind(&SockAddr::unix(path)?)?;
    // The mask of the process may have removed some.
    std::fs::set_permissions(path, Permissions::from_mode(MODE))?;
    socket.listen(BACKLOG)?;
    UnixListener::from_std(socket.into())
}

/// Removes a socket file that the previous run has left.
fn remove_stale(path: &Path) -> Result<(), UnixSocketError> {
    let system = |source| UnixSocketError::System {
        path: path.to_owned(),
        source,
    };
    let file = match std::fs::symlink_metadata(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(system(error)),
    };
    if !file.file_type().is_socket() {
        return Err(UnixSocketError::NotASocket(path.to_owned()));
    }
    match try_connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(system)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(system(error)),
        // Connected, or the queue of the listening process is full.
        _ => Err(UnixSocketError::InUse(path.to_owned())),
    }
}

fn try_connect(path: &Path) -> io::Result<()> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&SockAddr::unix(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_removed_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("edge.sock");
        // std does not remove the file.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let socket = UnixSocket::bind(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, MODE);
        drop(socket);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_socket_in_use_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("edge.sock");
        let _other = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(matches!(
            UnixSocket::bind(&path),
            Err(UnixSocketError::InUse(_))
        ));
        assert!(path.exists());
        let file = folder.path().join("file");
        std::fs::write(&file, "text").unwrap();
        assert!(matches!(
            UnixSocket::bind(&file),
            Err(UnixSocketError::NotASocket(_))
        ));
    }

    #[tokio::test]
    async fn the_socket_of_a_successor_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("edge.sock");
        let first = UnixSocket::bind(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let _second = UnixSocket::bind(&path).unwrap();
        drop(first);
        assert!(path.exists());
    }
}
