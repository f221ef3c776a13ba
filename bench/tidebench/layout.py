"""The tidegate under test, laid out as `pip install` would.

A binary in `<checkout>/target/<profile>/` looks for the Python package of its checkout, whose
extension may be of another profile. So the bench copies binary, extension and package into an
environment of their own; a binary that already has a `python` beside it is used as it is.
"""

import shutil
import subprocess
import sys
from pathlib import Path


class NotBuilt(Exception):
    """There is nothing to measure yet; the message says what to do."""


def installed(binary: Path, folder: Path, python: Path) -> Path:
    """The binary in an environment like that of an installed wheel, made in `folder` if needed."""
    binary = binary.resolve()
    if not binary.is_file():
        raise NotBuilt(f"there is no tidegate at `{binary}`")
    if (binary.parent / "python").exists():
        return binary
    library = binary.parent / "lib_native.so"
    checkout = binary.parents[2]
    package = checkout / "python" / "tidegate"
    if not library.is_file() or not package.is_dir():
        raise NotBuilt(
            f"`{binary}` is neither installed nor in a checkout with its extension; run there\n"
            f"  cargo build --profile {binary.parent.name} -p tidegate -p tidegate-python"
        )
    return lay_out(binary, library, package, folder, python)


def lay_out(binary: Path, library: Path, package: Path, folder: Path, python: Path) -> Path:
    if folder.exists():
        shutil.rmtree(folder)
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    site = next(folder.glob("lib/python*/site-packages"))
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.new")
    shutil.copytree(package, site / "tidegate", ignore=ignored)
    shutil.copy(library, site / "tidegate" / "_native.abi3.so")
    shutil.copy(binary, folder / "bin" / "tidegate")
    # As pip does, so that the first start is not the one that pays for it.
    subprocess.run([folder / "bin" / "python", "-m", "compileall", "-q", site], check=True)
    return folder / "bin" / "tidegate"


def schema(tidegate: Path, model: Path) -> bytes:
    """The model's schema, which Cog wants as a file."""
    answer = subprocess.run([tidegate, "schema", model], capture_output=True, check=False)
    if answer.returncode != 0:
        sys.stderr.buffer.write(answer.stderr)
        raise NotBuilt(f"`tidegate schema {model}` failed")
    return answer.stdout
