"""What the commands and the server say about the GPUs."""

import json
import subprocess
import time

from gpu.model_server import GpuServer, Program
from gpu.models import copy
from gpu.report import Report


def run(program: Program, report: Report) -> None:
    """`doctor`, `/admin/gpus`, `/metrics` and `ps` beside nvidia-smi."""
    fields = "index,name,memory.total,memory.used,temperature.gpu,driver_version"
    smi = _output("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader")
    report.fact(f"nvidia-smi: {smi}")
    model = copy(program.work, "faulty")
    doctor = _output(program.tidegate, "doctor", model, "--python", program.python)
    lines = [line for line in doctor.splitlines() if "GPU" in line]
    report.check(f"doctor: {'; '.join(lines)}", holds=any("NVIDIA" in line for line in lines))
    with GpuServer(program, model, "--workers", "auto") as server:
        status, body = server.predict(mode="add")
        report.check(f"prediction: {status} {body.get('output')}", holds=body.get("status") == "succeeded")
        pid = int(body["output"].split()[0])
        time.sleep(1.5)  # the state of the GPUs is read once a second
        gpus = server.get("/admin/gpus")
        report.fact(f"/admin/gpus: {json.dumps(gpus)}")
        held = [child for gpu in gpus["gpus"] for child in gpu["children"] if child["pid"] == pid]
        report.check(
            f"the process holds {[child['memory_bytes'] for child in held]} bytes by /admin/gpus",
            holds=bool(held) and (held[0]["memory_bytes"] or 0) > 100 << 20,
        )
        report.fact(f"/admin/children: {json.dumps(server.children())}")
        metrics = [line for line in server.text("/metrics").splitlines() if line.startswith("tidegate_gpu")]
        for line in metrics:
            report.fact(f"`{line}`")
        report.check(f"{len(metrics)} metrics of GPUs", holds=bool(metrics))
        ps = _output(program.tidegate, "ps", "--url", f"http://127.0.0.1:{server.port}")
        report.check("ps:\n\n```\n" + ps + "\n```", holds="NVIDIA" in ps)


def _output(*argv: object) -> str:
    done = subprocess.run([str(part) for part in argv], capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).strip()
