//! `make simulate`: runs simulations and prints one line for each.
#![expect(clippy::print_stdout, reason = "the results are for people")]

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use tidegate_simulation::checker::Percentiles;
use tidegate_simulation::faults::FaultRates;
use tidegate_simulation::{PlantedBug, RunReport, Scenario, run};

/// Simulates a cluster with faults and checks the invariants of docs/torture.md. A seed reproduces a run
/// exactly.
#[derive(Parser)]
#[command(name = "simulate")]
struct Args {
    /// The seeds, one run for each
    #[arg(default_values_t = [1])]
    seeds: Vec<u64>,
    /// Processes of the API
    #[arg(long, default_value_t = 2)]
    apis: usize,
    /// Directors
    #[arg(long, default_value_t = 4)]
    directors: usize,
    /// Jobs that each director runs at the same time
    #[arg(long, default_value_t = 2)]
    slots: usize,
    /// Jobs in all
    #[arg(long, default_value_t = 1000)]
    jobs: usize,
    /// The share of the directors' capacity that the jobs use on average
    #[arg(long, default_value_t = 0.8)]
    load: f64,
    /// The mean time between two faults of one director, in seconds
    #[arg(long, default_value_t = 120)]
    director_faults: u64,
    /// The mean time between two faults of the API, the store or the queue, in seconds
    #[arg(long, default_value_t = 60)]
    server_faults: u64,
    /// How many times more calls fail than usual
    #[arg(long, default_value_t = 1.0)]
    call_faults: f64,
    /// Nothing fails
    #[arg(long)]
    no_faults: bool,
    /// A bug of the simulated servers that the checker must find
    #[arg(long)]
    plant: Option<PlantedBug>,
    /// Where the events of the last run are written
    #[arg(long)]
    log: Option<PathBuf>,
}

impl Args {
    fn scenario(&self, seed: u64) -> Scenario {
        let scenario = Scenario {
            apis: self.apis,
            directors: self.directors,
            slots: self.slots,
            jobs: self.jobs,
            load: self.load,
            director_faults: Some(Duration::from_secs(self.director_faults)),
            server_faults: Some(Duration::from_secs(self.server_faults)),
            rates: FaultRates::BAD.times(self.call_faults),
            planted: self.plant,
            ..Scenario::new(seed)
        };
        if self.no_faults {
            scenario.without_faults()
        } else {
            scenario
        }
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let mut is_broken = false;
    for seed in &args.seeds {
        let log: Option<Box<dyn Write + Send>> = match &args.log {
            Some(path) => {
                let file = File::create(path)
                    .with_context(|| format!("failed to create `{}`", path.display()))?;
                Some(Box::new(BufWriter::new(file)))
            }
            None => None,
        };
        let report = run(args.scenario(*seed), log).context("failed to start a simulation")?;
        print(*seed, &report);
        is_broken |= report.numbers.violations > 0;
    }
    Ok(ExitCode::from(u8::from(is_broken)))
}

fn print(seed: u64, report: &RunReport) {
    let numbers = &report.numbers;
    println!(
        "seed {seed}: {} jobs in {:.0} s of simulated time, {} violations, hash {:016x} of {} events",
        numbers.inserted,
        report.simulated.as_secs_f64(),
        numbers.violations,
        report.hash,
        report.events,
    );
    println!(
        "  ended: {} succeeded, {} failed, {} canceled, {} aborted",
        numbers.succeeded, numbers.failed, numbers.canceled, numbers.aborted
    );
    println!(
        "  {} executions, {} leases ({} given back), {} deliveries of {} pushes, {} webhooks",
        numbers.executions,
        numbers.leases,
        numbers.released,
        report.deliveries.1,
        report.deliveries.0,
        numbers.messages,
    );
    println!(
        "  faults of directors: {} ends, {} partitions",
        numbers.crashes, numbers.partitions
    );
    for (name, waits) in [
        ("all", numbers.waits()),
        ("heavy account", numbers.heavy_waits()),
        ("other accounts", numbers.light_waits()),
    ] {
        println!("  waiting time, {name}: {}", text(waits));
    }
    for violation in &report.violations {
        println!("  {violation}");
    }
}

fn text(waits: Percentiles) -> String {
    format!(
        "half {:.2} s, 99 % {:.2} s, longest {:.2} s",
        waits.half.as_secs_f64(),
        waits.most.as_secs_f64(),
        waits.longest.as_secs_f64()
    )
}
