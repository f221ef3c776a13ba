//! The pool against backends that the tests play themselves, byte by byte.

mod backend;
mod cancel;
mod failures;
mod http1;
mod http2;
mod reuse;
mod tls;
mod upgrade;
