//! The events of a run, as lines: a hash of all of them shows whether two runs were the same.

use std::fmt::{self, Write as _};
use std::io::Write;

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// The events so far.
pub struct EventLog {
    hash: u64,
    count: u64,
    line: String,
    /// Where the lines are written, if they are wanted.
    output: Option<Box<dyn Write + Send>>,
}

impl EventLog {
    /// A log that writes its lines to `output`.
    pub fn new(output: Option<Box<dyn Write + Send>>) -> Self {
        Self {
            hash: FNV_OFFSET,
            count: 0,
            line: String::new(),
            output,
        }
    }

    /// Adds an event at this time, in milliseconds since the start of the run.
    pub fn add(&mut self, at: u64, event: fmt::Arguments<'_>) {
        self.line.clear();
        // Writing to a string does not fail.
        writeln!(self.line, "{at} {event}").ok();
        for byte in self.line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
        }
        self.count += 1;
        if let Some(output) = &mut self.output {
            // The log is for people: without it the run goes on.
            output.write_all(self.line.as_bytes()).ok();
        }
    }

    /// The hash of all events.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The number of events.
    pub fn count(&self) -> u64 {
        self.count
    }
}
