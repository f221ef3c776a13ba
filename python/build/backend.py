"""PEP 517 backend: builds a wheel with the extension module and the `tidegate` program.

One wheel has both, so that `pip install tidegate` installs the `tidegate` command and the package that its
child processes import, always in the same version. maturin alone can build only one of the two.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import maturin
from maturin import (  # noqa: F401  (these hooks are maturin's own)
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)

ROOT = Path(__file__).resolve().parents[2]
PROFILE = os.environ.get("TIDEGATE_WHEEL_PROFILE", "wheel")
#: The settings of jemalloc: a thread of its own returns unused memory after a second. More arenas would keep
#: more memory for themselves; threads rarely wait for one, because each has a cache.
ALLOCATOR = "narenas:4,background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0"
SCRIPTS = ROOT / "target" / "wheel-data" / "scripts"


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: dict[str, object] | None = None
) -> str:
    """Prepare the metadata of the wheel. maturin requires its data folder even for that."""
    SCRIPTS.mkdir(parents=True, exist_ok=True)
    return maturin.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, object] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Build the program, then the wheel that contains it."""
    _build_program()
    settings = dict(config_settings or {})
    settings.setdefault("build-args", f"--profile {PROFILE}")
    return maturin.build_wheel(wheel_directory, settings, metadata_directory)


def build_sdist(sdist_directory: str, config_settings: dict[str, object] | None = None) -> str:
    """Build the source distribution."""
    return maturin.build_sdist(sdist_directory, config_settings)


def _build_program() -> None:
    command = ["cargo", "build", "--locked", "--profile", PROFILE, "--package", "tidegate"]
    command += ["--features", "jemalloc"]
    environment = os.environ | {"JEMALLOC_SYS_WITH_MALLOC_CONF": ALLOCATOR}
    subprocess.run(command, cwd=ROOT, check=True, env=environment)  # noqa: S603
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    SCRIPTS.mkdir(parents=True, exist_ok=True)
    shutil.copy2(target / PROFILE / "tidegate", SCRIPTS / "tidegate")
