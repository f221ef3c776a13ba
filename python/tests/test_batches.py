"""Several predictions in one call of `predict_batch`."""

from __future__ import annotations

from pathlib import Path

import pytest

DOUBLE = """
    import tidegate

    class Predictor:
        def predict(self, n: int, unit: str = "m") -> str:
            raise AssertionError("not called")

        @tidegate.batched(max_size=8, max_wait="2ms")
        def predict_batch(self, items):
            print("call with", len(items))
            return [f"{item['n'] * 2} {item['unit']} of {len(items)}" for item in items]
"""


def outputs(outcomes) -> list:
    return [outcome.output for outcome in outcomes]


def test_the_items_share_a_call_and_have_the_defaults(serve) -> None:
    child = serve(DOUBLE)
    assert child.ready["batch"] == {"max_size": 8, "max_message": 8, "max_wait_micros": 2000}
    outcomes, calls = child.run_batch({"n": 1}, {"n": 2, "unit": "km"}, {"n": 3})
    assert outputs(outcomes) == ["2 m of 3", "4 km of 3", "6 m of 3"]
    assert calls == [3]
    assert [outcome.logs for outcome in outcomes] == ["", "", ""]
    child.operator_log("call with 3")


def test_a_single_item_has_the_output_of_its_call(serve) -> None:
    child = serve(DOUBLE)
    (outcome,), calls = child.run_batch({"n": 1})
    assert (outcome.output, outcome.logs, calls) == ("2 m of 1", "call with 1\n", [1])


@pytest.mark.parametrize("prefix", ["", "async "])
def test_an_exception_as_a_result_fails_its_item_only(serve, prefix: str) -> None:
    child = serve(f"""
        import tidegate

        class Predictor:
            {prefix}def predict(self, n: int) -> int:
                raise AssertionError("not called")

            @tidegate.batched
            {prefix}def predict_batch(self, items):
                return [ValueError("odd") if item["n"] % 2 else item["n"] for item in items]
        """)
    outcomes, calls = child.run_batch({"n": 1}, {"n": 2})
    assert (outcomes[0].error, outcomes[1].output) == ("Prediction failed: ValueError: odd", 2)
    assert calls == [2]


@pytest.mark.parametrize("prefix", ["", "async "])
def test_after_a_raise_each_item_runs_alone_once(serve, prefix: str) -> None:
    child = serve(f"""
        import tidegate

        class Predictor:
            {prefix}def predict(self, n: int) -> int:
                raise AssertionError("not called")

            @tidegate.batched
            {prefix}def predict_batch(self, items):
                if any(item["n"] < 0 for item in items):
                    raise ValueError("negative")
                return [item["n"] for item in items]
        """)
    outcomes, calls = child.run_batch({"n": 1}, {"n": -2}, {"n": 3})
    assert (outcomes[0].output, outcomes[2].output) == (1, 3)
    assert outcomes[1].error == "Prediction failed: ValueError: negative"
    assert "raise ValueError" in outcomes[1].logs, "the traceback"
    assert calls == [3, 1, 1, 1]
    assert outputs(child.run_batch({"n": 4}, {"n": 5})[0]) == [4, 5]


@pytest.mark.parametrize(
    ("returned", "error"),
    [
        ("[1]", "predict_batch returned 1 results for 2 items; it must return one per item, in their order"),
        (
            "None",
            "predict_batch returned NoneType; it must return a list with one result per item, in the order "
            "of the items",
        ),
        (
            "'ab'",
            "predict_batch returned str; it must return a list with one result per item, in the order of the "
            "items",
        ),
    ],
)
def test_a_wrong_result_fails_all_items(serve, returned: str, error: str) -> None:
    child = serve(f"""
        import tidegate

        class Predictor:
            def predict(self, n: int) -> int:
                return n

            @tidegate.batched
            def predict_batch(self, items):
                return {returned}
        """)
    outcomes, calls = child.run_batch({"n": 1}, {"n": 2})
    assert [outcome.error for outcome in outcomes] == [f"Prediction failed: {error}"] * 2
    assert calls == [2], "it is not run again"


def test_a_result_that_cannot_be_sent_fails_its_item_only(serve) -> None:
    child = serve("""
        from typing import Any

        import tidegate

        class Predictor:
            def predict(self, n: int) -> Any:
                return n

            @tidegate.batched
            def predict_batch(self, items):
                return [object() if item["n"] == 1 else item["n"] for item in items]
        """)
    outcomes, _ = child.run_batch({"n": 1}, {"n": 2})
    assert outcomes[0].error.startswith("Prediction failed: Failed to serialize output: ")
    assert outcomes[1].output == 2


def test_logs_and_metrics_of_one_item(serve) -> None:
    child = serve("""
        import tidegate
        from cog import current_scope

        class Predictor:
            def predict(self, n: int) -> int:
                return n

            @tidegate.batched
            def predict_batch(self, items):
                current_scope().record_metric("lost", 1)
                for number, item in enumerate(items):
                    with tidegate.item(number):
                        print("item", item["n"])
                        current_scope().record_metric("n", item["n"])
                print("after the items")
                return [item["n"] for item in items]
        """)
    outcomes, _ = child.run_batch({"n": 5}, {"n": 6})
    assert [outcome.logs for outcome in outcomes] == ["item 5\n", "item 6\n"]
    assert [outcome.metrics for outcome in outcomes] == [[("n", 5, "replace")], [("n", 6, "replace")]]
    child.operator_log("after the items")


def test_an_item_that_does_not_exist_is_an_error(serve) -> None:
    child = serve("""
        import tidegate

        class Predictor:
            def predict(self, n: int) -> int:
                return n

            @tidegate.batched
            def predict_batch(self, items):
                with tidegate.item(len(items)):
                    return [item["n"] for item in items]
        """)
    outcomes, _ = child.run_batch({"n": 5})
    assert "item 1 does not exist: the call has 1 items" in outcomes[0].error


GROUPS = """
    import tidegate

    class Predictor:
        def predict(self, size: int = 1, text: str = "") -> str:
            return ""

        @tidegate.batched(max_size=3, {options})
        def predict_batch(self, items):
            return [" ".join(f"{{item['size']}}{{item['text']}}" for item in items)] * len(items)
"""


@pytest.mark.parametrize(
    "group", ["group='size'", "group=lambda item: item['size']", "group=('size', 'size')"]
)
def test_only_items_of_a_group_share_a_call(serve, group: str) -> None:
    child = serve(GROUPS.format(options=group))
    assert child.ready["batch"]["max_message"] == 6, "so that the items of a group find each other"
    outcomes, calls = child.run_batch({"size": 1}, {"size": 2}, {}, {"size": 2}, {"size": 1}, {"size": 1})
    assert outputs(outcomes) == ["1 1 1", "2 2", "1 1 1", "2 2", "1 1 1", "1"]
    assert calls == [3, 2, 1]


@pytest.mark.parametrize("cost", ["cost='text'", "cost=lambda item: len(item['text'])"])
def test_the_cost_of_a_call_is_bounded(serve, cost: str) -> None:
    child = serve(GROUPS.format(options=f"{cost}, max_cost=4"))
    outcomes, calls = child.run_batch({"text": "aaa"}, {"text": "bb"}, {"text": "cc"}, {"text": "dddddd"})
    assert outputs(outcomes) == ["1aaa", "1bb 1cc", "1bb 1cc", "1dddddd"]
    assert calls == [1, 2, 1], "an item above the limit runs alone"


def test_a_group_function_that_raises_fails_its_item_only(serve) -> None:
    child = serve(GROUPS.format(options="group=lambda item: 1 // item['size']"))
    outcomes, _ = child.run_batch({"size": 0}, {"size": 1})
    assert outcomes[0].error == "Prediction failed: ZeroDivisionError: integer division or modulo by zero"
    assert outcomes[1].output == "1"


MEMORY = """
    import tidegate

    class OutOfMemoryError(RuntimeError):
        pass

    class Predictor:
        def predict(self, n: int) -> int:
            return n

        @tidegate.batched(max_size=8)
        def predict_batch(self, items):
            if len(items) > 3:
                raise OutOfMemoryError("no memory for this batch")
            return [len(items) for _ in items]
"""


def test_memory_lowers_the_size_of_the_calls(serve) -> None:
    child = serve(MEMORY)
    outcomes, calls = child.run_batch(*[{"n": n} for n in range(6)])
    assert (outputs(outcomes), calls) == ([1] * 6, [6, 1, 1, 1, 1, 1, 1])
    _, calls = child.run_batch(*[{"n": n} for n in range(7)])
    assert calls == [3, 3, 1]


def test_options_of_the_operator_take_precedence(serve) -> None:
    child = serve(DOUBLE, batch={"max_size": 32, "max_wait_micros": 0})
    assert child.ready["batch"] == {"max_size": 32, "max_message": 32, "max_wait_micros": 0}


PLAIN = """
    class Predictor:
        def predict(self, n: int) -> int:
            return n

        def predict_batch(self, items):
            return [item["n"] + len(items) for item in items]
"""


def test_an_unmarked_method_needs_an_option(serve) -> None:
    assert serve(PLAIN).ready["batch"] is None
    child = serve(PLAIN, batch={"max_size": 4})
    assert outputs(child.run_batch({"n": 1}, {"n": 2})[0]) == [3, 4]


@pytest.mark.parametrize("marks", [("batched", "staticmethod"), ("staticmethod", "batched")])
def test_a_static_method_is_marked_on_either_side(serve, marks) -> None:
    first, second = (mark if mark == "staticmethod" else f"tidegate.{mark}" for mark in marks)
    child = serve(f"""
        import tidegate

        class Predictor:
            def predict(self, n: int) -> int:
                return n

            @{first}
            @{second}
            def predict_batch(items):
                return [item["n"] + len(items) for item in items]
        """)
    assert outputs(child.run_batch({"n": 1}, {"n": 2})[0]) == [3, 4]


def test_a_mark_without_effect_is_told(launch) -> None:
    child = launch("""
        import tidegate

        class Predictor:
            @tidegate.batched
            def predict(self, n: int) -> int:
                return n
        """)
    log = child.control_until("worker_log")
    assert log["message"] == (
        "`Predictor` does not batch: `@tidegate.batched` marks a method `predict_batch(self, items)`, which "
        "it does not define; define it or remove the mark"
    )


def test_a_function_beside_a_function(serve) -> None:
    source = """
        import tidegate

        def predict(n: int, plus: int = 1) -> int:
            return n

        @tidegate.batched
        def predict_batch(items):
            return [item["n"] + item["plus"] for item in items]
    """
    child = serve(source, ref="predict.py:predict")
    assert outputs(child.run_batch({"n": 1}, {"n": 2})[0]) == [2, 3]


def test_trainings_are_not_batched(serve) -> None:
    child = serve(
        DOUBLE,
        train="train.py:train",
        files={"train.py": "def train(n: int) -> str:\n    return str(n)\n"},
    )
    child.start(kind="training", n=7)
    assert child.finish().output == "7"
    assert outputs(child.run_batch({"n": 1})[0]) == ["2 m of 1"]


def test_an_output_file_belongs_to_its_item(serve) -> None:
    child = serve("""
        import tidegate
        from cog import Path

        class Predictor:
            def predict(self, n: int) -> Path:
                return Path("x")

            @tidegate.batched(max_size=2)
            def predict_batch(self, items):
                with open("same.txt", "w") as file:
                    file.write(" ".join(str(item["n"]) for item in items))
                return [Path("same.txt") for _ in items]
        """)
    first, _ = child.run_batch({"n": 1}, {"n": 2})
    child.run_batch({"n": 3}, {"n": 4})
    # The model continues at once, and may write to the same path while the server reads the file.
    assert [Path(outcome.files[0]["filename"]).read_text() for outcome in first] == ["1 2", "1 2"]


def test_a_rerun_gets_the_inputs_of_the_client(serve, tmp_path: Path) -> None:
    child = serve("""
        import tidegate
        from cog import File

        class Predictor:
            def predict(self, name: str, file: File) -> str:
                return ""

            @tidegate.batched
            def predict_batch(self, items):
                results = [item.pop("name") + item["file"].read().decode() for item in items]
                if len(items) > 1:
                    raise ValueError("not together")
                return results
        """)
    files = []
    for name in ("a", "b"):
        path = tmp_path / name
        path.write_text(name * 3)
        files.append(path)
    jobs = [child._request(0, "prediction", {"name": path.name, "file": str(path)}) for path in files]
    for job, path in zip(jobs, files, strict=True):
        job["files"] = {"/file": str(path)}
    child.slots[0].send({"batch": {"items": jobs}})
    outcomes, calls = child.finish_batch(2)
    assert (outputs(outcomes), calls) == (["aaaa", "bbbb"], [2, 1, 1])


@pytest.mark.parametrize("prefix", ["", "async "])
def test_an_item_whose_file_is_gone_fails_and_the_others_run_alone(
    serve, tmp_path: Path, prefix: str
) -> None:
    child = serve(f"""
        import os

        import tidegate
        from cog import File

        class Predictor:
            {prefix}def predict(self, name: str, file: File) -> str:
                return ""

            @tidegate.batched
            {prefix}def predict_batch(self, items):
                if len(items) > 1:
                    os.remove(items[0]["file"].name)
                    raise ValueError("not together")
                return [item["name"] for item in items]
        """)
    files = [tmp_path / "a", tmp_path / "b"]
    jobs = []
    for path in files:
        path.write_text(path.name)
        job = child._request(0, "prediction", {"name": path.name, "file": str(path)})
        jobs.append(job | {"files": {"/file": str(path)}})
    child.slots[0].send({"batch": {"items": jobs}})
    outcomes, calls = child.finish_batch(2)
    assert (outcomes[0].error, outcomes[1].output) == ("Prediction failed: ValueError: not together", "b")
    assert calls == [2, 1]


def test_one_item_that_needs_too_much_memory_does_not_lower_the_size(serve) -> None:
    child = serve("""
        import tidegate

        class Predictor:
            def predict(self, n: int) -> int:
                return n

            @tidegate.batched(max_size=8)
            def predict_batch(self, items):
                if any(item["n"] < 0 for item in items):
                    raise MemoryError
                return [len(items) for _ in items]
        """)
    outcomes, _ = child.run_batch(*[{"n": n} for n in (-1, 1, 2, 3)])
    assert outcomes[0].error.startswith("Prediction failed: MemoryError")
    _, calls = child.run_batch(*[{"n": n} for n in range(8)])
    assert calls == [8]


def test_calls_grow_again(serve) -> None:
    child = serve(MEMORY)
    child.run_batch(*[{"n": n} for n in range(4)])
    sizes = {tuple(child.run_batch({"n": 1}, {"n": 2}, {"n": 3})[1]) for _ in range(60)}
    assert sizes == {(2, 1), (3,)}


def test_an_item_block_does_nothing_in_a_training(serve) -> None:
    child = serve(
        """
        import tidegate

        class Predictor:
            def predict(self, n: int) -> int:
                return n

            @tidegate.batched
            def predict_batch(self, items):
                for number, item in enumerate(items):
                    with tidegate.item(number):
                        print("item", item["n"])
                return [item["n"] for item in items]

            def train(self, n: int) -> str:
                return str(sum(self.predict_batch([{"n": n}, {"n": n}])))
        """,
        train="predict.py:Predictor",
    )
    child.start(kind="training", n=7)
    outcome = child.finish()
    assert (outcome.output, outcome.logs) == ("14", "item 7\nitem 7\n")


def test_a_missing_cost_is_zero(serve) -> None:
    child = serve("""
        from typing import Optional
        import tidegate

        class Predictor:
            def predict(self, text: Optional[str] = None) -> int:
                return 0

            @tidegate.batched(cost="text", max_cost=2)
            def predict_batch(self, items):
                return [len(items) for _ in items]
        """)
    assert outputs(child.run_batch({}, {"text": "ab"}, {"text": "c"})[0]) == [2, 2, 1]


def test_text_without_a_line_break_is_not_lost(serve) -> None:
    child = serve("""
        import tidegate

        class Predictor:
            def predict(self, n: int) -> int:
                return n

            @tidegate.batched
            def predict_batch(self, items):
                print("half a line", end="", flush=True)
                return [item["n"] for item in items]
        """)
    child.run_batch({"n": 1}, {"n": 2})
    child.operator_log("half a line")


METHODS = """
    import tidegate
    from cog import ConcatenateIterator

    class Predictor:
        def predict(self) -> {output}:
            {result}

        @tidegate.batched{options}
        def predict_batch(self, items):
            {results}
"""


def methods(*, options: str = "", results: str = "return items", streams: bool = False) -> str:
    output, result = ("ConcatenateIterator[str]", "yield ''") if streams else ("str", "return ''")
    return METHODS.format(output=output, result=result, options=options, results=results)


@pytest.mark.parametrize(
    ("source", "options", "reason"),
    [
        (
            "class Predictor:\n    def predict(self) -> str:\n        return ''\n",
            {"max_size": 4},
            "--batch-size and --batch-wait need a method `predict_batch(self, items)`, which `Predictor` "
            "does not define; define it or remove the options",
        ),
        (
            methods(streams=True),
            {},
            "`Predictor` yields its output, and a stream cannot be part of a batch",
        ),
        (
            methods(results="yield 1"),
            {},
            "`predict_batch` of `Predictor` yields; it must return a list with one result per item",
        ),
        (
            methods(options="(max_wait='soon')"),
            {},
            "max_wait must be a duration such as '5ms' or '0.1s', not 'soon'",
        ),
        (
            methods(options="(cost='n')"),
            {},
            "`cost` and `max_cost` belong together: give both or neither",
        ),
        (methods(options="(max_size=0)"), {}, "max_size must be between 1 and 4096, not 0"),
        (methods(options="(group=3)"), {}, "group must be the name of an input or a function of the item"),
        (
            methods(options="(group='size')"),
            {},
            "`@tidegate.batched` of `Predictor` has group='size', and `predict` has no input with this name; "
            "use one of its inputs, or a function of the item",
        ),
        (methods(options="(group=('size',))"), {}, "has group='size'"),
        (methods(options="(cost='size', max_cost=9)"), {}, "has cost='size'"),
    ],
)
def test_a_model_that_cannot_batch_fails_to_load(launch, source: str, options: dict, reason: str) -> None:
    child = launch(source, batch=options)
    assert reason in child.fatal()["reason"]
