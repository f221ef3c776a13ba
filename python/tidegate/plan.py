"""How to run one kind of job; decided once, when the model is loaded."""

from tidegate.call_kind import is_async

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate._native import Job
    from tidegate.batch_plan import BatchPlan
    from tidegate.loader import EntryPoint


class Plan:
    """How jobs of one kind are run. Does not change after loading."""

    __slots__ = ("call", "call_kind", "convert", "error_prefix", "is_async", "opens_files", "yields")

    def __init__(
        self,
        target: "EntryPoint",
        convert: "Callable[[Job], dict[str, object]]",
        *,
        is_training: bool,
        yields: bool,
        opens_files: bool,
    ) -> None:
        """Store the decisions; `yields` says that the declared output is an iterator."""
        self.call = target.call
        self.call_kind = target.call_kind
        self.is_async = is_async(target.call_kind)
        self.convert = convert
        self.yields = yields
        self.opens_files = opens_files
        # Cog says it twice: `Prediction failed: Prediction failed: `, `Prediction failed: Training failed: `.
        self.error_prefix = "Training failed: " if is_training else "Prediction failed: "


class Plans:
    """The plans of a model: one for predictions, one for trainings (often the same)."""

    __slots__ = ("batch", "prediction", "training")

    def __init__(self, prediction: Plan, training: Plan, batch: "BatchPlan | None" = None) -> None:
        """Store the plans; a model without `train` has the same plan twice, and most have no `batch`."""
        self.prediction = prediction
        self.training = training
        self.batch = batch

    def for_job(self, job: "Job") -> Plan:
        """Return the plan for this job."""
        return self.training if job.is_training else self.prediction
