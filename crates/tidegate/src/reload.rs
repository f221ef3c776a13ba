//! Reloads files on SIGHUP.
//!
//! Each file is one action. If an action fails, the error is logged, the previous content stays in use,
//! and the other actions run.

use std::future::pending;

use tokio::signal::unix::{SignalKind, signal};

/// Reloads one file.
pub(crate) type ReloadAction = Box<dyn Fn() -> anyhow::Result<()> + Send + Sync>;

/// The actions, with their names.
#[derive(Default)]
pub(crate) struct Reload {
    /// In the order in which they run.
    pub(crate) actions: Vec<(&'static str, ReloadAction)>,
}

impl Reload {
    /// Installs the signal handler, and returns the future that runs the actions. It never ends.
    ///
    /// Without actions SIGHUP keeps its default: it ends the server, because the terminal was closed.
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
                Ok(()) => tracing::info!(name, "reloaded"),
                Err(error) => tracing::error!(
                    name,
                    error = format!("{error:#}"),
                    "failed to reload, keeping the previous content"
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
    fn a_failing_action_does_not_stop_the_others() {
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
