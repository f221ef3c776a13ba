"""Rows E3, E7 of docs/reliability.md: user code that prints too much, invalid bytes, or too late."""

import pytest
from footprint import assert_recovers
from processes import cpu_seconds, peak_memory, reset_peak_memory

MIB = 1024 * 1024
LOGS_KEPT = 16 * MIB

FLOODS = {
    "64 MiB in lines": ("lines", 64, "logs truncated"),
    "one line of 32 MiB": ("line", 32, "line truncated"),
    "1 GiB in long lines": ("blocks", 1024, "logs truncated"),
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("flood", FLOODS)
def test_a_log_flood_is_truncated_with_a_notice(start_server, receiver, flood):
    how, size, notice = FLOODS[flood]
    server = start_server("faults", "--log-level", "warn")
    hook = receiver.path()
    with assert_recovers(server):
        reset_peak_memory(server.process.pid)
        server.start({"how": f"prints.{how}", "number": size}, webhook=receiver.url + hook)
        body = receiver.wait_terminal(hook, timeout=60)
    assert (body["status"], body["output"]) == ("succeeded", "printed")
    assert len(body["logs"]) <= LOGS_KEPT + 200
    assert notice in body["logs"]
    assert peak_memory(server.process.pid) < 400 * MIB


@pytest.mark.timeout(120)
def test_the_cost_of_logs_with_a_webhook_is_linear(start_server, receiver):
    server = start_server("faults", "--log-level", "warn")

    def cost(size: int) -> float:
        """Processor time of the server, because wall time depends on the load of the machine."""
        hook, before = receiver.path(), cpu_seconds(server.process.pid)
        server.start({"how": "prints.lines", "number": size}, webhook=receiver.url + hook)
        assert receiver.wait_terminal(hook, timeout=60)["status"] == "succeeded"
        return cpu_seconds(server.process.pid) - before

    cost(4)  # the first is the dearest
    small, large = cost(4), cost(16)
    # Four times as much: a quadratic cost would be 16 times.
    assert large < 12 * max(small, 0.3), f"4 MiB: {small:.2f} s, 16 MiB: {large:.2f} s"


@pytest.mark.parametrize("how", ["empty_lines", "flushes"])
def test_many_tiny_writes(server, receiver, how):
    hook = receiver.path()
    with assert_recovers(server):
        server.start({"how": f"prints.{how}", "number": 30_000}, webhook=receiver.url + hook)
        body = receiver.wait_terminal(hook, timeout=30)
    assert (body["status"], len(body["logs"])) == ("succeeded", 30_000)


def test_output_that_bypasses_python_is_only_in_the_server_log(server):
    with assert_recovers(server):
        body = server.predict({"how": "prints.descriptor", "number": 16}, timeout=30).json
    assert (body["output"], body["logs"]) == ("printed", "")


def test_invalid_utf8_in_logs_is_escaped_in_valid_json(server, receiver):
    hook = receiver.path()
    with assert_recovers(server):
        server.start({"how": "prints.odd_bytes"}, webhook=receiver.url + hook)
        body = receiver.wait_terminal(hook)
    assert body["output"] == "printed"
    assert "NUL \0 in the middle" in body["logs"] and body["logs"].endswith("tail")


def test_a_character_in_two_writes_is_one_character(server):
    assert server.predict({"how": "prints.split_character"}).json["logs"] == "é\n"


def test_lines_of_many_threads_are_not_mixed(server):
    with assert_recovers(server):
        logs = server.predict({"how": "prints.threads", "number": 16}).json["logs"]
    expected = {f"{which}:{i}" for which in range(16) for i in range(100)}
    assert set(logs.split("\n")) - {""} == expected


@pytest.mark.parametrize("how", ["forged", "broken_logger"])
def test_forged_log_lines_have_no_effect(server, how):
    with assert_recovers(server):
        assert server.predict({"how": f"prints.{how}"}).json["output"] == "printed"


def test_a_thread_that_prints_forever_does_not_block_other_jobs(start_server):
    server = start_server("faults", "--log-level", "warn")
    with assert_recovers(server):
        assert server.predict({"how": "prints.background_flood"}).json["output"] == "printed"
        for number in range(5):
            assert server.predict({"text": str(number)}).json["logs"] == f"echo {number}\n"
        reset_peak_memory(server.process.pid)
        server.predict({"how": "deaths.exit"})
    assert peak_memory(server.process.pid) < 200 * MIB


def test_a_log_flood_in_setup_is_truncated(start_server, tmp_path):
    folder = tmp_path / "talkative"
    folder.mkdir()
    (folder / "cog.yaml").write_text("predict: predict.py:Predictor\n")
    (folder / "predict.py").write_text(
        "class Predictor:\n"
        "    def setup(self):\n"
        "        for number in range(48):\n"
        "            print('s' * (1024 * 1024))\n"
        "    def predict(self, text: str = '') -> str:\n"
        "        return f'echo {text}'\n"
    )
    server = start_server(folder, "--log-level", "warn")
    with assert_recovers(server):
        assert len(server.get("/health-check").body) < LOGS_KEPT + 4096
    assert peak_memory(server.process.pid) < 300 * MIB
