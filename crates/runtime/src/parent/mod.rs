//! The parent's side of a child: start it, wait for it to be ready, carry jobs to it, see it end.

pub(crate) mod boot;
pub(crate) mod child;
pub(crate) mod control;
pub(crate) mod courier;
pub(crate) mod link;
pub(crate) mod spawn;
