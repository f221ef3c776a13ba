//! What is read again on SIGHUP: files that may change while the server runs.
//!
//! Each is one action. One that fails is logged and leaves what was read before in place, and the
//! others are done all the same.

use std::future::pending;

use tokio::signal::unix::{SignalKind, signal};

/// Reads something again and puts it to use.
pub(crate) type Action = Box<dyn Fn() -> anyhow::Result<()> + Send + Sync>;

/// What to read again, by name.
#[derive(Default)]
pub(crate) struct Reload {
    /// Done in this order, each time.
    pub(crate) actions: Vec<(&'static str, Action)>,
}

impl Reload {
    /// Listens from now on; the future that does the work never ends.
    ///
    /// With nothing to read again SIGHUP keeps its meaning: the terminal is gone, and so is the server.
    pub(crate) fn listen(self) -> std::io::Result<impl Future<Output = ()>> {
        let hangup = if self.actions.is_empty() {
            None
        } else {
            Some(signal(SignalKind::hangup())?)
        };
        Ok(async move {
            let Some(mut hangup) = hangup else {
                return pending().await;
            };
            while hangup.recv().await.is_some() {
                self.run();
            }
            pending().await
        })
    }

    fn run(&self) {
        for (name, action) in &self.actions {
            match action() {
                Ok(()) => tracing::info!(name, "read again"),
                Err(error) => tracing::error!(
                    name,
                    error = format!("{error:#}"),
                    "could not be read again, what was read before stays"
                ),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn one_that_fails_does_not_keep_the_others_from_being_read() {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let reload = Reload {
            actions: vec![
                ("broken", Box::new(|| anyhow::bail!("no"))),
                (
                    "good",
                    Box::new(move || {
                        counted.fetch_add(1, Ordering::Relaxed);
                        Ok(())
                    }),
                ),
            ],
        };
        reload.run();
        reload.run();
        assert_eq!(count.load(Ordering::Relaxed), 2);
    }
}
