"""Everything about one kind of job that can be known before the first one comes."""

from tidegate.shape import is_async

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate._native import Job
    from tidegate.loader import Target


class Plan:
    """How jobs of one kind are run. Nothing in it changes after loading."""

    __slots__ = ("call", "convert", "failed", "is_async", "opens_files", "shape", "yields")

    def __init__(
        self,
        target: "Target",
        convert: "Callable[[Job], dict[str, object]]",
        *,
        is_training: bool,
        yields: bool,
        opens_files: bool,
    ) -> None:
        """Keep what was decided at load; `yields` says that an iterator is declared as the result."""
        self.call = target.call
        self.shape = target.shape
        self.is_async = is_async(target.shape)
        self.convert = convert
        self.yields = yields
        self.opens_files = opens_files
        # The words that Cog uses; clients compare them.
        if is_training:
            self.failed = "Prediction failed: Training failed: "
        elif self.is_async:
            self.failed = "Prediction failed: Async prediction failed: "
        else:
            self.failed = "Prediction failed: Prediction failed: "


class Plans:
    """The plans of a model: one for predictions, one for trainings (often the same)."""

    __slots__ = ("prediction", "training")

    def __init__(self, prediction: Plan, training: Plan) -> None:
        """Both are always there."""
        self.prediction = prediction
        self.training = training

    def of(self, job: "Job") -> Plan:
        """Return the plan for this job."""
        return self.training if job.is_training else self.prediction
