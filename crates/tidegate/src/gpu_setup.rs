//! The GPUs of a command that runs models: which of them it may use, and which models get some.

use std::path::Path;
use std::sync::Arc;

use tidegate_core::gpu::{GpuAssigner, GpuSource};
use tidegate_gpu::{
    GpuLedger, GpuMonitor, GpuPool, GpuSelection, InheritedVisibility, ModelGpuNeeds,
};
use tidegate_runtime::LoadLimit;

use crate::cli::{GpuArgs, GpusPerWorker};
use crate::model_source::ModelSource;
use crate::usage_error::UsageError;

/// The variable that selects the GPUs of a process.
const CUDA_VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";
/// The file in the data directory with the memory that models have used.
const REQUIREMENTS_FILE: &str = "gpu-memory.json";
/// Exists on machines with a GPU of AMD, which tidegate does not manage.
const AMD_DEVICE: &str = "/dev/kfd";

/// The GPUs of a command.
#[derive(Clone)]
pub(crate) struct GpuSetup {
    args: GpuArgs,
    pub(crate) source: Arc<dyn GpuSource>,
    pool: GpuPool,
    /// Whether models can be unloaded for others.
    evictable: bool,
}

/// How a model uses GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GpuUse {
    /// Its processes get GPUs of their own.
    Assigned,
    /// It sees what the server sees.
    Inherited,
    /// It sees none.
    Hidden,
}

impl GpuSetup {
    /// Finds the GPUs. `data_dir` is where the memory of models is remembered.
    pub(crate) async fn open(args: &GpuArgs, data_dir: Option<&Path>) -> anyhow::Result<Self> {
        let ledger = GpuLedger::open(data_dir.map(|dir| dir.join(REQUIREMENTS_FILE)));
        let (trust, observer) = (args.gpu_pids.into(), ledger.clone());
        let start = move || GpuMonitor::start(trust, move |report| observer.observe(report));
        // A driver without users may need seconds to start.
        let monitor = tokio::task::spawn_blocking(start).await?;
        let report = monitor.report();
        if let Some(problem) = &report.problem {
            tracing::warn!(
                problem,
                "the NVIDIA driver does not work, continuing without GPUs"
            );
        }
        let inherited = InheritedVisibility {
            cuda: std::env::var(CUDA_VISIBLE_DEVICES).ok(),
            nvidia: std::env::var("NVIDIA_VISIBLE_DEVICES").ok(),
        };
        let visible = inherited.visible(&report);
        let selection = args.gpus.as_ref().unwrap_or(&GpuSelection::All);
        let selected = selection.select(&visible).map_err(|error| {
            UsageError::new(error.to_string())
                .hint("`tidegate doctor` lists the GPUs; check --gpus and CUDA_VISIBLE_DEVICES")
        })?;
        let has_parts = selected.iter().any(|gpu| gpu.id.as_str() == gpu.uuid);
        check_per_worker(args, selected.len(), has_parts)?;
        let source: Arc<dyn GpuSource> = Arc::new(monitor);
        Ok(Self {
            args: args.clone(),
            pool: GpuPool::new(&selected, Arc::clone(&source), ledger),
            source,
            evictable: false,
        })
    }

    /// Lets models be unloaded for others.
    pub(crate) fn evict_with(&mut self, load_limit: &LoadLimit) {
        self.pool.set_evictor(Arc::new(load_limit.clone()));
        self.evictable = true;
    }

    /// The number of processes of a model for which there are GPUs, if it gets some.
    pub(crate) fn places(&self, model: &ModelSource) -> Option<usize> {
        let is_assigned = self.use_of(model) == GpuUse::Assigned && self.pool.size() > 0;
        is_assigned.then(|| self.pool.size() / self.per_worker())
    }

    /// Gives GPUs to a version of a model; `None` if its processes see what the server sees.
    pub(crate) fn assigner(
        &self,
        model: &ModelSource,
        name: &str,
        version: &str,
    ) -> Option<Arc<dyn GpuAssigner>> {
        self.places(model)?;
        Some(self.pool.assigner(ModelGpuNeeds {
            model: name.to_owned(),
            version: version.to_owned(),
            gpus_per_child: self.per_worker(),
            memory: self.args.memory_of(name),
            evictable: self.evictable,
        }))
    }

    /// The variable that hides all GPUs, for a model that may not see them.
    pub(crate) fn hiding_variable(
        &self,
        model: &ModelSource,
    ) -> Option<(&'static str, &'static str)> {
        (self.use_of(model) == GpuUse::Hidden).then_some((CUDA_VISIBLE_DEVICES, ""))
    }

    /// Warns about a model that asks for a GPU and runs without one.
    pub(crate) fn warn_about(&self, model: &ModelSource) {
        let is_missing =
            model.gpu == Some(true) && self.places(model).is_none_or(|places| places == 0);
        if is_missing && self.use_of(model) != GpuUse::Inherited && !Path::new(AMD_DEVICE).exists()
        {
            tracing::warn!(
                folder = %model.dir.display(),
                "`build.gpu` in cog.yaml asks for a GPU, and there is none for the model: it runs on the CPU; `tidegate doctor` shows the GPUs"
            );
        }
    }

    fn use_of(&self, model: &ModelSource) -> GpuUse {
        // A model that selects its GPUs itself knows better.
        if model
            .env
            .iter()
            .any(|(name, _)| name == CUDA_VISIBLE_DEVICES)
        {
            return GpuUse::Inherited;
        }
        match (&self.args.gpus, model.gpu) {
            (Some(GpuSelection::None | GpuSelection::Count(0)), _) | (Some(_), Some(false)) => {
                GpuUse::Hidden
            }
            (Some(_), Some(true) | None) | (None, Some(true)) => GpuUse::Assigned,
            (None, Some(false) | None) => GpuUse::Inherited,
        }
    }

    fn per_worker(&self) -> usize {
        match self.args.gpus_per_worker {
            GpusPerWorker::Count(count) => count,
            GpusPerWorker::All => self.pool.size().max(1),
        }
    }
}

/// Refuses more GPUs per process than there are.
fn check_per_worker(args: &GpuArgs, gpus: usize, has_parts: bool) -> Result<(), UsageError> {
    let wanted = match args.gpus_per_worker {
        GpusPerWorker::Count(count) => count,
        GpusPerWorker::All => gpus,
    };
    // Without any GPU, models run on the CPU.
    if gpus > 0 && wanted > gpus {
        let message = format!(
            "`--gpus-per-worker {wanted}` is more than the {gpus} GPUs that models may use"
        );
        return Err(UsageError::new(message).hint("`tidegate doctor` lists the GPUs"));
    }
    if has_parts && wanted > 1 {
        let message =
            "a process can use only one MIG device, and --gpus-per-worker asks for several";
        return Err(UsageError::new(message).hint("select whole cards with --gpus"));
    }
    Ok(())
}
