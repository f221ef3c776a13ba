//! The simulation: its servers keep the contracts of the real ones, a seed gives one run, and the checker
//! finds planted bugs.

mod planted_bugs;
mod queue_suite;
mod runs;
mod store_suite;
