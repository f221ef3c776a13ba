//! The program: command line, configuration, wiring. It decides nothing about jobs.

mod build_info;
mod cli;
mod cog_yaml;
mod commands;
mod compat;
mod config;
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
    match realtime::command_line(&std::env::args_os().collect::<Vec<_>>()).and_then(commands::run) {
        Ok(code) => code,
        Err(error) => failure::report(&error),
    }
}
