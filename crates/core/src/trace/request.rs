//! The request that the current task answers, so that the layers below HTTP find its span.
//!
//! The edge enters the scope of a request each time it polls the request's handler. A job that the handler
//! submits becomes a child of the request's span, without an argument through every API.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::SpanContext;

thread_local!(static CURRENT: Cell<Option<Arc<RequestScope>>> = const { Cell::new(None) });

/// The scope of one request.
#[derive(Debug)]
pub struct RequestScope {
    context: SpanContext,
    is_kept: AtomicBool,
}

impl RequestScope {
    /// The scope of the request with this span.
    pub fn new(context: SpanContext) -> Arc<Self> {
        Arc::new(Self {
            context,
            is_kept: AtomicBool::new(false),
        })
    }

    /// Whether the span of the request is exported: the request asked for a job.
    pub fn is_kept(&self) -> bool {
        self.is_kept.load(Ordering::Relaxed)
    }

    /// Runs `poll` inside the scope.
    pub fn enter<R>(self: &Arc<Self>, poll: impl FnOnce() -> R) -> R {
        let _outer = Outer(CURRENT.replace(Some(Arc::clone(self))));
        poll()
    }
}

/// The scope around an inner one. It is restored on drop, because `poll` may panic.
struct Outer(Option<Arc<RequestScope>>);

impl Drop for Outer {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// Has the span of the current request exported, because it asks for a job.
pub fn keep_request_span() {
    with_current(|scope| scope.is_kept.store(true, Ordering::Relaxed));
}

/// The span of the current request; `None` outside of requests and without a tracer.
pub fn request_context() -> Option<SpanContext> {
    with_current(|scope| scope.context)
}

fn with_current<R>(read: impl FnOnce(&RequestScope) -> R) -> Option<R> {
    let current = CURRENT.take()?;
    let result = read(&current);
    CURRENT.set(Some(current));
    Some(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(span_id: u64) -> Arc<RequestScope> {
        RequestScope::new(SpanContext {
            trace_id: 1,
            span_id,
            is_sampled: true,
        })
    }

    #[test]
    fn the_inner_scope_counts_until_it_is_left() {
        let (outer, inner) = (scope(1), scope(2));
        let current = || request_context().map(|context| context.span_id);
        outer.enter(|| {
            inner.enter(|| {
                assert_eq!(current(), Some(2));
                keep_request_span();
            });
            assert_eq!(current(), Some(1));
        });
        assert_eq!(current(), None);
        assert_eq!((outer.is_kept(), inner.is_kept()), (false, true));
    }
}
