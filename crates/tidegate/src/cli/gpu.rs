//! The arguments about GPUs.

use std::str::FromStr;

use clap::{Args, ValueEnum};
use tidegate_gpu::{GpuSelection, PidTrust};

use super::heading;
use crate::units;

/// How a command uses the GPUs of the machine.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = heading::GPUS)]
pub(crate) struct GpuArgs {
    /// GPUs that models may use: `all`, `none`, a number of them, or a list of indices (as `nvidia-smi`
    /// numbers them) or UUIDs such as `0,2` or `device=1` [default: all, for models with `gpu: true` in
    /// cog.yaml; other models see what the server sees]
    #[arg(long, env = "TIDEGATE_GPUS", value_name = "GPUS", value_parser = GpuSelection::from_str)]
    pub(crate) gpus: Option<GpuSelection>,
    /// GPUs of each process of a model, for models that use several at once; `all` gives every process all
    /// of them
    #[arg(long, env = "TIDEGATE_GPUS_PER_WORKER", value_name = "N", default_value = "1", value_parser = GpusPerWorker::from_str)]
    pub(crate) gpus_per_worker: GpusPerWorker,
    /// GPU memory that each process of a model needs on each of its GPUs, such as `20GiB`, or `MODEL=SIZE`
    /// for one model; can be given several times [default: measured when the model has run]
    #[arg(long, env = "TIDEGATE_GPU_MEMORY", value_name = "[MODEL=]SIZE", value_delimiter = ',', value_parser = GpuMemoryArg::from_str)]
    pub(crate) gpu_memory: Vec<GpuMemoryArg>,
    /// Whether the process ids that the driver reports are those of this machine's processes, to find out
    /// which model holds how much memory: `auto` only outside of containers, because drivers report the
    /// ids of the host
    #[arg(
        long,
        env = "TIDEGATE_GPU_PIDS",
        value_name = "MODE",
        value_enum,
        default_value = "auto"
    )]
    pub(crate) gpu_pids: GpuPidsArg,
}

impl GpuArgs {
    /// The declared memory of a model, by its name `OWNER/NAME` or `NAME`. The last value counts.
    pub(crate) fn memory_of(&self, name: &str) -> Option<u64> {
        let short = name.rsplit('/').next();
        let is_for = |arg: &&GpuMemoryArg| match arg.model.as_deref() {
            Some(model) => model == name || Some(model) == short,
            None => false,
        };
        let own = self.gpu_memory.iter().rfind(is_for);
        let all = || self.gpu_memory.iter().rfind(|arg| arg.model.is_none());
        own.or_else(all).map(|arg| arg.bytes)
    }
}

/// The number of GPUs of each process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GpusPerWorker {
    /// This many.
    Count(usize),
    /// All that models may use.
    All,
}

impl FromStr for GpusPerWorker {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self::All),
            text => units::count(text)
                .map(Self::Count)
                .map_err(|_| "write a number above 0, or `all`".to_owned()),
        }
    }
}

/// The declared memory of one model or of all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GpuMemoryArg {
    model: Option<String>,
    bytes: u64,
}

impl FromStr for GpuMemoryArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (model, size) = match text.rsplit_once('=') {
            Some((model, size)) => (Some(model.trim().to_owned()), size),
            None => (None, text),
        };
        let bytes = units::size(size.trim())?;
        if bytes == 0 || model.as_ref().is_some_and(String::is_empty) {
            return Err("write a size such as `20GiB`, or `MODEL=20GiB`".to_owned());
        }
        let bytes = bytes as u64;
        Ok(Self { model, bytes })
    }
}

/// Whether the process ids of the driver are believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum GpuPidsArg {
    /// Outside of containers only
    Auto,
    /// Always
    Trust,
    /// Never
    Ignore,
}

impl From<GpuPidsArg> for PidTrust {
    fn from(arg: GpuPidsArg) -> Self {
        match arg {
            GpuPidsArg::Auto => Self::Auto,
            GpuPidsArg::Trust => Self::Trust,
            GpuPidsArg::Ignore => Self::Ignore,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_model_is_its_own_or_that_of_all() {
        let texts = ["1GiB", "ann/big=60GiB", "small=2GiB", "small=3GiB"];
        let args = GpuArgs {
            gpus: None,
            gpus_per_worker: GpusPerWorker::Count(1),
            gpu_memory: texts.iter().map(|text| text.parse().unwrap()).collect(),
            gpu_pids: GpuPidsArg::Auto,
        };
        let of = |name| args.memory_of(name).map(|bytes| bytes >> 30);
        assert_eq!(
            (of("ann/big"), of("bob/big"), of("local/small"), of("x/y")),
            (Some(60), Some(1), Some(3), Some(1))
        );
    }

    #[test]
    fn invalid_values_are_refused() {
        for text in ["", "=1GiB", "0", "much", "a=b"] {
            assert!(text.parse::<GpuMemoryArg>().is_err(), "{text}");
        }
        assert!("0".parse::<GpusPerWorker>().is_err());
        assert_eq!("all".parse(), Ok(GpusPerWorker::All));
    }
}
