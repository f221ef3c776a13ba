"""The GPUs that the server finds, and who holds their memory."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor

from environment import ROOT
from fake_gpus import GIB, MODEL
from gpu_state import listed, metrics, wait_gpu
from waiting import wait_until


def test_each_gpu_is_listed_with_its_state(gpus, serve_gpus):
    gpus.card(0, used=2 * GIB, utilization=35, temperature=61)
    gpus.card(1, name="NVIDIA Fake 40GB", total=40 * GIB)
    server = serve_gpus()
    first, second = listed(server)
    assert (first["id"], first["index"], first["kind"], first["name"]) == ("0", 0, "card", "NVIDIA Fake 80GB")
    assert first["memory_total_bytes"] == 80 * GIB
    assert (first["memory_used_bytes"], first["memory_free_bytes"]) == (2 * GIB, 78 * GIB)
    assert (first["utilization_percent"], first["temperature_celsius"]) == (35, 61)
    assert (second["uuid"], second["memory_total_bytes"]) == (gpus.uuid(1), 40 * GIB)
    assert server.get("/admin/gpus").json["driver"] == "570.86.15"


def test_the_state_follows_the_machine(gpus, serve_gpus):
    gpus.card(0)
    server = serve_gpus()
    gpus.card(0, used=5 * GIB, utilization=90, temperature=70)
    wait_gpu(server, 0, memory_used_bytes=5 * GIB, utilization_percent=90, temperature_celsius=70)


def test_a_model_process_and_other_processes_hold_memory(gpus, serve_gpus):
    gpus.card(0)
    server = serve_gpus()
    child = json.loads(server.predict({"hold": 3 * GIB}).json["output"])["pid"]
    gpus.hold(0, server.process.pid, GIB)
    gpu = wait_gpu(server, 0, memory_used_bytes=4 * GIB, other_memory_bytes=GIB)
    [holder] = gpu["children"]
    assert (holder["model"], holder["number"], holder["pid"]) == ("local/gpu_model", 0, child)
    assert (holder["memory_bytes"], gpu["other_processes"]) == (3 * GIB, 1)


def test_in_a_container_it_is_unknown_who_holds_memory(gpus, serve_gpus):
    gpus.card(0)
    server = serve_gpus(env={"TIDEGATE_GPU_PIDS": "ignore"})
    server.predict({"hold": 3 * GIB})
    gpu = wait_gpu(server, 0, memory_used_bytes=3 * GIB)
    assert [child["memory_bytes"] for child in gpu["children"]] == [None]
    assert (gpu["other_processes"], gpu["other_memory_bytes"]) == (None, None)


def test_what_a_card_does_not_support_is_unknown(gpus, serve_gpus):
    gpus.card(0, name=None, total=None, utilization=None, temperature=None, no_processes=1)
    gpus.card(1, no_process_memory=1)
    gpus.hold(1, 1, GIB)
    server = serve_gpus()
    blind, partly = listed(server)
    unknown = [
        "name",
        "memory_total_bytes",
        "memory_used_bytes",
        "utilization_percent",
        "temperature_celsius",
    ]
    unknown += ["other_processes", "other_memory_bytes"]
    assert {name: blind[name] for name in unknown} == dict.fromkeys(unknown)
    assert (partly["other_processes"], partly["other_memory_bytes"]) == (1, None)
    assert not any("temperature" in name and 'gpu="0"' in name for name in metrics(server))


def test_the_parts_of_a_divided_card_are_listed(gpus, serve_gpus):
    gpus.card(0, mig=1, utilization=None)
    gpus.mig(0, 0)
    gpus.mig(0, 4)
    kinds = [(gpu["kind"], gpu["id"]) for gpu in listed(serve_gpus())]
    assert kinds == [("divided", "0"), ("mig", "MIG-00"), ("mig", "MIG-04")]


def test_cards_are_numbered_in_pci_order(gpus, serve_gpus):
    gpus.card(0, bus="00000000:0B:00.0", name="second")
    gpus.card(1, bus="00000000:0A:00.0", name="first")
    assert [(gpu["index"], gpu["name"]) for gpu in listed(serve_gpus())] == [(0, "first"), (1, "second")]


def test_metrics(gpus, serve_gpus):
    gpus.card(0, used=2 * GIB, utilization=35, temperature=61)
    server = serve_gpus()
    server.predict({"hold": 3 * GIB})
    wait_gpu(server, 0, memory_used_bytes=5 * GIB)
    found = metrics(server)
    assert found[f'tidegate_gpu_info{{gpu="0",uuid="{gpus.uuid(0)}",name="NVIDIA Fake 80GB"}}'] == 1
    assert found['tidegate_gpu_memory_total_bytes{gpu="0"}'] == 80 * GIB
    assert found['tidegate_gpu_memory_used_bytes{gpu="0"}'] == 5 * GIB
    assert found['tidegate_gpu_utilization_ratio{gpu="0"}'] == 0.35
    assert found['tidegate_gpu_temperature_celsius{gpu="0"}'] == 61
    assert found['tidegate_gpu_child_memory_bytes{gpu="0",model="local/gpu_model",child="0"}'] == 3 * GIB
    assert found['tidegate_gpu_xid_errors_total{gpu="0"}'] == 0


def test_the_reference_page_lists_exactly_these_metrics(gpus, serve_gpus):
    gpus.card(0)
    server = serve_gpus()
    wait_until(lambda: any("child_memory" in name for name in metrics(server)), "the memory of the process")
    page = (ROOT / "docs/reference/metrics.md").read_text()
    assert {name.partition("{")[0] for name in metrics(server)} == set(
        re.findall(r"`(tidegate_gpu_\w+)`", page)
    )


def test_ps_shows_the_gpus_and_who_holds_their_memory(gpus, serve_gpus, tidegate_gpus):
    gpus.card(0, used=2 * GIB, utilization=35, temperature=61)
    gpus.card(1, total=None, utilization=None, temperature=None)
    server = serve_gpus()
    child = json.loads(server.predict({"hold": 3 * GIB}).json["output"])["pid"]
    gpus.hold(0, server.process.pid, GIB)
    wait_gpu(server, 0, memory_used_bytes=6 * GIB)

    def rows() -> list[list[str]]:
        shown = tidegate_gpus("ps", "--url", server.url)
        return [re.split(r" {2,}", line) for line in shown.stdout.splitlines()]

    # The page that `ps` reads is at most half a second old.
    wait_until(
        lambda: ["0", "NVIDIA Fake 80GB", "6.00 GiB of 80.00 GiB", "35%", "61°C", "0", "-"] in rows(),
        "the card",
    )
    shown = rows()
    assert ["1", "NVIDIA Fake 80GB", "-", "-", "-", "0", "-"] in shown
    assert ["0", "local/gpu_model#0", str(child), "3.00 GiB"] in shown
    assert ["0", "1 of other programs", "-", "1.00 GiB"] in shown
    gpus.xid(0, 79)
    wait_until(lambda: any("cordoned after Xid 79" in row for row in rows()), "the cordon")


def test_critical_errors_are_counted(gpus, serve_gpus):
    gpus.card(0)
    gpus.card(1)
    server = serve_gpus()
    gpus.xid(1, 79)
    gpus.xid(1, 13)
    gpu = wait_gpu(server, 1, xid_errors=2)
    assert gpu["last_xid"] == 13
    assert listed(server)[0]["xid_errors"] == 0
    assert metrics(server)['tidegate_gpu_xid_errors_total{gpu="1"}'] == 2
    assert "critical error of a GPU" in server.log()


def test_a_driver_that_hangs_does_not_stop_the_server(gpus, serve_gpus):
    gpus.card(0)
    server = serve_gpus()
    gpus.hang()
    gpus.card(0, used=GIB)
    assert server.predict({}).status == 200
    assert listed(server)[0]["memory_used_bytes"] in (0, GIB)
    assert server.get("/metrics").status == 200
    gpus.recover()
    wait_gpu(server, 0, memory_used_bytes=GIB)


def test_only_administrators_see_the_gpus(gpus, serve_gpus):
    gpus.card(0)
    tokens = {"TIDEGATE_API_TOKENS": "user-0123456789abcdef:ann,admin-0123456789abcdef:ops:admin"}
    server = serve_gpus(env=tokens, until=())
    headers = [{"Authorization": f"Bearer {role}-0123456789abcdef"} for role in ("user", "admin")]
    wait_until(lambda: not server.refuses_connections(), "the server")
    assert [server.get("/admin/gpus", headers=each).status for each in headers] == [403, 200]


def test_the_page_gets_the_gpus(gpus, serve_gpus):
    gpus.card(0)
    server = serve_gpus()
    sections = server.get("/ui/api/snapshot").json["sections"]
    assert [gpu["uuid"] for gpu in sections["gpus"]] == [gpus.uuid(0)]


def test_without_the_library_there_are_no_gpus(start_server):
    server = start_server("echo")
    assert server.get("/admin/gpus").json == {"driver": None, "gpus": []}
    assert metrics(server) == {}
    assert "gpus" not in server.get("/ui/api/snapshot").json["sections"]


def test_a_driver_that_does_not_work_is_reported(gpus, serve_gpus, tidegate_gpus):
    server = serve_gpus()
    assert "driver" in server.get("/admin/gpus").json["problem"]
    assert "the NVIDIA driver does not work" in server.log()
    assert "warn the NVIDIA driver does not work" in tidegate_gpus("doctor").stdout


def test_a_driver_that_does_not_answer_at_the_start_is_reported(gpus, serve_gpus, tidegate_gpus):
    gpus.card(0)
    gpus.hang()
    with ThreadPoolExecutor(1) as pool:
        doctor = pool.submit(tidegate_gpus, "doctor")
        server = serve_gpus()
        assert server.get("/admin/gpus").json["problem"] == "the driver does not answer"
        warning = "warn the NVIDIA driver does not work: the driver does not answer"
        assert warning in doctor.result().stdout
    gpus.recover()
    wait_until(lambda: listed(server), "the card")
    assert "problem" not in server.get("/admin/gpus").json


def test_doctor_shows_each_gpu(gpus, tidegate_gpus):
    gpus.card(0, used=2 * GIB, utilization=35, temperature=61)
    gpus.card(1, total=None, utilization=None, temperature=None)
    done = tidegate_gpus("doctor")
    line = "ok   GPU 0: NVIDIA Fake 80GB, 2.0 GiB of 80.0 GiB used, 35 % busy, 61 °C, driver 570.86.15"
    assert line in done.stdout.splitlines()
    assert "ok   GPU 1: NVIDIA Fake 80GB, unknown memory, driver 570.86.15" in done.stdout.splitlines()


def test_doctor_warns_about_a_gpu_model_without_a_gpu(gpus, tidegate_gpus):
    warning = "warn `build.gpu` in cog.yaml asks for a GPU"
    assert warning in tidegate_gpus("doctor", MODEL, env={"LD_LIBRARY_PATH": ""}).stdout
    gpus.card(0)
    assert warning not in tidegate_gpus("doctor", MODEL).stdout
