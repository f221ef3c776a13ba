//! What is read again on SIGHUP: files with secrets, certificates, tokens.

use std::convert::Infallible;

use tokio::signal::unix::{SignalKind, signal};

/// Reads one thing again and puts it in the place of the old one, which stays when that fails.
type Action = Box<dyn Fn() -> anyhow::Result<()> + Send + Sync>;

/// What is read again on SIGHUP.
#[derive(Default)]
pub(crate) struct Reload {
    actions: Vec<(&'static str, Action)>,
}

impl Reload {
    /// Adds something; `what` is its name in the log.
    pub(crate) fn add(&mut self, what: &'static str, action: impl Fn() -> anyhow::Result<()> + Send + Sync + 'static) {
        self.actions.push((what, Box::new(action)));
    }

    /// Listens for SIGHUP from now on; the future acts on it. Without anything to read the signal keeps
    /// its meaning: it ends a server whose terminal was closed.
    pub(crate) fn watch(self) -> std::io::Result<impl Future<Output = Infallible>> {
        let hangups = if self.actions.is_empty() { None } else { Some(signal(SignalKind::hangup())?) };
        Ok(async move {
            let Some(mut hangups) = hangups else { return std::future::pending().await };
            loop {
                hangups.recv().await;
                self.run();
            }
        })
    }

    fn run(&self) {
        for (what, action) in &self.actions {
            match action() {
                Ok(()) => tracing::info!(what, "read again"),
                Err(error) => tracing::error!(what, error = format!("{error:#}"), "could not be read again; the old one stays"),
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
    fn one_failure_does_not_keep_the_others_from_being_read() {
        let read = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&read);
        let mut reload = Reload::default();
        reload.add("broken", || anyhow::bail!("no such file"));
        reload.add("good", move || {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        reload.run();
        assert_eq!(read.load(Ordering::Relaxed), 1);
    }
}
