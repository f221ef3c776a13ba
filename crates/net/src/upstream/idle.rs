//! The HTTP/1.1 connections to one address that wait for their next request.
//!
//! The runtime that has opened a connection waits for its events. If a task of another runtime used it, each
//! event would wake a thread. So each runtime uses its own connections.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::time::Instant;

use super::http1::Http1Connection;

/// The connections without a request.
pub(super) struct IdleConnections {
    limit: Duration,
    max_idle: usize,
    /// There are a few runtimes only, so a list is searched faster than a hash table.
    by_runtime: Mutex<Vec<(Id, OwnConnections)>>,
}

/// The connections of one runtime. The one that was used last is at the back and is used first.
type OwnConnections = VecDeque<IdleConnection>;

struct IdleConnection {
    connection: Box<Http1Connection>,
    since: Instant,
}

impl IdleConnections {
    /// Keeps at most `max_idle` connections for each runtime, for at most `limit`.
    pub(super) fn new(limit: Duration, max_idle: usize) -> Self {
        Self {
            limit,
            max_idle,
            by_runtime: Mutex::default(),
        }
    }

    /// An open connection of the runtime of the caller.
    pub(super) fn take(&self) -> Option<Box<Http1Connection>> {
        let runtime = Handle::current().id();
        loop {
            let IdleConnection {
                mut connection,
                since,
            } = self.change(runtime, VecDeque::pop_back)?;
            if since.elapsed() >= self.limit {
                // All others have been idle for longer.
                drop(self.change(runtime, std::mem::take));
                return None;
            }
            if connection.is_idle() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection for the next request, or closes it.
    pub(super) fn keep(&self, mut connection: Box<Http1Connection>) {
        if !connection.is_idle() {
            return;
        }
        let (runtime, since) = (connection.runtime(), Instant::now());
        let surplus = self.change(runtime, |own| {
            own.push_back(IdleConnection { connection, since });
            (own.len() > self.max_idle).then(|| own.pop_front())
        });
        drop(surplus);
    }

    /// Closes the connections that have been idle for too long. Returns whether there are no others.
    pub(super) fn sweep(&self) -> bool {
        let mut expired = Vec::new();
        let is_empty = {
            let mut by_runtime = self.by_runtime();
            by_runtime.retain_mut(|(_, own)| {
                while own
                    .front()
                    .is_some_and(|first| first.since.elapsed() >= self.limit)
                {
                    expired.extend(own.pop_front());
                }
                !own.is_empty()
            });
            by_runtime.is_empty()
        };
        drop(expired);
        is_empty
    }

    /// Changes the connections of a runtime. Connections are closed outside of the lock, by the caller.
    fn change<T>(&self, runtime: Id, change: impl FnOnce(&mut OwnConnections) -> T) -> T {
        let mut by_runtime = self.by_runtime();
        let index = match by_runtime.iter().position(|(id, _)| *id == runtime) {
            Some(index) => index,
            None => {
                by_runtime.push((runtime, OwnConnections::new()));
                by_runtime.len() - 1
            }
        };
        change(&mut by_runtime[index].1)
    }

    fn by_runtime(&self) -> MutexGuard<'_, Vec<(Id, OwnConnections)>> {
        self.by_runtime
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
