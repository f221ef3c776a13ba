//! The program: command line, configuration, wiring. It decides nothing about jobs.

mod build_info;
mod cli;
mod cog_yaml;
mod commands;
mod compat;
mod data_dir;
mod exit;
mod failure;
mod files_store;
mod front;
#[cfg(test)]
mod fuzz;
mod inputs;
mod listen;
mod model;
mod models;
mod outputs;
mod platform;
mod progress;
mod python;
mod realtime;
mod reload;
mod remote;
mod run_as;
mod runpod_config;
mod runpod_env;
mod runpod_lines;
mod secrets;
mod shutdown;
mod telemetry;
mod tokens;
mod units;
mod version;
mod webhook_secrets;
mod wiring;

use std::process::ExitCode;

fn main() -> ExitCode {
    secrets::hide();
    let cli = match realtime::command_line() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are answers, not mistakes.
            let code = if error.use_stderr() { exit::USAGE } else { 0 };
            error.print().ok();
            return ExitCode::from(code);
        }
    };
    match cli.map_err(anyhow::Error::from).and_then(commands::run) {
        Ok(code) => code,
        Err(error) => failure::report(&error),
    }
}
