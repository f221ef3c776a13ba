//! The program: command line, configuration, and wiring of the crates. It has no job logic.

mod admin_client;
mod batch_setup;
mod build_info;
mod cli;
mod cluster_backends;
mod cluster_endpoints;
mod cog_yaml;
mod cog_yaml_keys;
mod commands;
mod compat;
mod config;
mod data_dir;
mod director_env;
mod director_token;
mod edge_config;
mod endpoint_setup;
mod environments;
mod exit;
mod file_migration;
mod file_setup;
mod files_store;
#[cfg(test)]
mod fuzz;
mod gpu_setup;
mod http_server;
mod inputs;
mod job_lookup;
mod join;
mod listen;
mod model_factory;
mod model_source;
mod models;
#[cfg(feature = "otel")]
mod otel;
mod otel_env;
mod outputs;
mod postgres_setup;
mod predictor_file;
mod progress;
mod python;
mod realtime;
mod redis_queue;
mod reload;
mod replicate_setup;
mod run_as;
mod runpod_config;
mod runpod_env;
mod runpod_log_format;
mod secrets;
mod server_connection;
mod settings;
mod shell;
mod shutdown;
mod source_version;
mod startup;
mod store_ports;
mod telemetry;
mod tokens;
mod trace_export;
mod units;
mod usage_error;
mod webhook_secrets;
mod worker_count;

use std::process::ExitCode;

/// Gives memory back after a burst of connections, and needs less for each than the allocator of the C library.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    secrets::hide();
    #[cfg(feature = "planted-bugs")]
    if let Ok(bug) = std::env::var("TIDEGATE_PLANT") {
        assert!(
            tidegate_core::planted::enable(&bug),
            "TIDEGATE_PLANT: there is no bug `{bug}`"
        );
    }
    match realtime::parse_command_line(&std::env::args_os().collect::<Vec<_>>())
        .and_then(commands::run)
    {
        Ok(code) => code,
        Err(error) => usage_error::report(&error),
    }
}
