"""Uses a GPU in the ways in which models break it."""

import os

import torch
from cog import BasePredictor

ASSERT = "CUDA error: device-side assert triggered\nCUDA kernel errors might be reported later"


class OddType(type):
    """A class without a readable module."""

    @property
    def __module__(cls) -> str:
        raise SystemExit


class Odd(Exception, metaclass=OddType):
    """An exception that cannot be inspected."""


class Predictor(BasePredictor):
    def predict(self, do: str = "work") -> int:
        """Return the process id; `do` says what happens before."""
        if do == "exhaust":
            held = [torch.cuda.Tensor(torch.cuda.GIB // 2)]
            held.append(held)  # only the garbage collector frees it
            torch.cuda.Tensor(torch.cuda.GIB)
        if do == "exhaust_wrapped":
            try:
                self.predict("exhaust")
            except torch.OutOfMemoryError as error:
                raise ValueError("the picture is too large") from error
        if do == "assert":
            torch.cuda.break_context(ASSERT)
        if do == "assert_swallowed":
            torch.cuda.break_context(ASSERT)
            return os.getpid()
        if do == "fail":
            torch.cuda.init()
            raise ValueError("a wrong value")
        if do == "fail_oddly":
            raise Odd("an odd exception")
        if do == "fail_once":
            torch.cuda.fail_once("CUDA error: invalid argument")
            raise ValueError("a wrong value")
        torch.cuda.Tensor(torch.cuda.GIB * 3 // 4)
        return os.getpid()
