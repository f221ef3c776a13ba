"""Row E11 of docs/reliability.md: user code that patches the interpreter."""

import pytest
from footprint import assert_recovers

PATCHES = [
    "json_module",
    "streams",
    "working_folder",
    "tracing",
    "recursion_limit",
    "exception_hooks",
    "context",
    "garbage_collector",
    "built_ins",
    "modules",
    "internals",
]


@pytest.mark.parametrize("how", PATCHES)
def test_jobs_after_a_patch_are_correct_or_run_in_a_new_child(server, how):
    """Each ends correctly: no client gets `null` or an empty result as a success."""
    with assert_recovers(server):
        server.predict({"how": f"patches.{how}"})
        for number in range(3):
            body = server.predict({"text": str(number)}).json
            right = (body["status"], body.get("output")) == ("succeeded", f"echo {number}")
            assert right or body["status"] == "failed", body
        # Failures of later jobs go through code that may be patched as well.
        body = server.predict({"how": "errors.base"}).json
        assert body["status"] == "failed" and body["error"]


@pytest.mark.parametrize("how", ["json_module", "streams", "context", "working_folder"])
def test_common_patches_do_not_affect_later_jobs(server, how):
    server.predict({"how": f"patches.{how}"})
    body = server.predict({"text": "x"}).json
    assert (body["status"], body["output"]) == ("succeeded", "echo x")
    assert server.predict({"how": "values.stream", "number": 2}).json["status"] == "succeeded"


def test_logs_work_again_after_a_job_replaced_its_streams(server):
    """The streams of the job that replaces them are its own affair; the next job prints as ever."""
    server.predict({"how": "patches.streams"})
    assert server.predict({"text": "x"}).json["logs"] == "echo x\n"


def test_hanging_exit_handlers_and_threads_do_not_block_the_shutdown(server):
    server.predict({"how": "patches.exit_handlers"})
    server.process.terminate()
    assert server.wait_exit(10) == 0
