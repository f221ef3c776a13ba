"""Verifies tidegate on a machine with an NVIDIA GPU, and measures it beside bare loops.

    bench/gpu/run.py --tidegate-bin BIN --python PYTHON

BIN is an installed `tidegate` (`pip install .`), PYTHON an interpreter with torch and transformers, and with
CuPy and JAX for their failures. Prints a report in Markdown. The exit status is 1 if something that must hold
does not.
"""

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCH))

from gpu import batching, decoder, discovery, failures, spares, turns
from gpu.model_server import Program
from gpu.report import Report

SECTIONS = {
    "discovery": discovery.run,
    "failures": failures.run,
    "spares": spares.run,
    "turns": turns.run,
    "batching": batching.run,
    "decoder": decoder.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tidegate-bin", type=Path, required=True, metavar="BIN")
    parser.add_argument("--python", type=Path, default=Path(sys.executable), metavar="PYTHON")
    parser.add_argument("--only", default=",".join(SECTIONS), help=f"some of {','.join(SECTIONS)}")
    parser.add_argument("--quick", action="store_true", help="short measurements, to try the script")
    parser.add_argument("--logs", type=Path, metavar="DIR", help="keep the logs of the servers there")
    options = parser.parse_args()
    report = Report()
    with tempfile.TemporaryDirectory(prefix="tidegate-gpu-") as folder:
        work = Path(folder)
        # The interpreter of a virtual environment is a link that must not be resolved.
        program = Program(
            options.tidegate_bin.resolve(),
            Path(shutil.which(options.python) or options.python).absolute(),
            work,
            options.quick,
        )
        for name in options.only.split(","):
            report.section(name)
            began = time.perf_counter()
            try:
                SECTIONS[name](program, report)
            except Exception:
                report.failed(f"the section ended early:\n\n```\n{traceback.format_exc()}\n```")
            report.fact(f"took {time.perf_counter() - began:.0f} s")
        if options.logs:
            options.logs.mkdir(parents=True, exist_ok=True)
            for log in work.glob("*.log"):
                (options.logs / log.name).write_bytes(log.read_bytes())
    print(f"\n{report.n_failed} failed")
    sys.exit(1 if report.n_failed else 0)


if __name__ == "__main__":
    main()
