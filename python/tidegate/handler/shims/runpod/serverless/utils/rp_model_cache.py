"""Locates Hugging Face models in Runpod's cache."""

from runpod.serverless.modules.rp_logger import RunPodLogger


def resolve_model_cache_path_from_hugginface_repository(
    huggingface_repository: str, /, path_template: str = "/runpod/cache/{model}/{revision}"
) -> "str | None":
    """Return the folder of `org/model:revision`; the default revision is `main`."""
    model, colon, revision = huggingface_repository.rpartition(":")
    if not colon:
        model, revision = huggingface_repository, "main"
    if not model:
        RunPodLogger().warn(f'Unable to resolve the model-cache path for "{huggingface_repository}"')
        return None
    return path_template.format(model=model, revision=revision)
