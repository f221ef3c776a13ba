"""Each case writes log lines in one way."""

import logging
import os
import subprocess
import sys
import threading
import time

from cog import BasePredictor


def later(path: str) -> None:
    while not os.path.exists(path):
        time.sleep(0.005)
    print("late line")


class Predictor(BasePredictor):
    def predict(self, case: str = "print", gate: str = "") -> str:
        getattr(self, case)(gate)
        return case

    def quiet(self, _: str) -> None:
        pass

    def print(self, _: str) -> None:
        print("one")
        print("two", file=sys.stderr)
        print("three", "four", sep="-", end="!\n")

    def colours(self, _: str) -> None:
        print("\x1b[31mred\x1b[0m")
        print("10%\r20%\r30%")
        print("tab\there é \U0001f30a")

    def blank(self, _: str) -> None:
        print()
        print("")
        print("a\n\nb")

    def pieces(self, _: str) -> None:
        sys.stdout.write("a")
        sys.stdout.write("b")
        sys.stdout.flush()
        sys.stdout.write("c\nd\n")

    def lines(self, _: str) -> None:
        for number in range(200):
            print(number)

    def write_lines(self, _: str) -> None:
        sys.stdout.writelines(["x\n", "y\n"])

    def logger(self, _: str) -> None:
        logging.getLogger("mine").warning("warned")

    def thread(self, _: str) -> None:
        worker = threading.Thread(target=print, args=("from a thread",))
        worker.start()
        worker.join()

    def unterminated(self, _: str) -> None:
        print("tail", end="")

    def late_thread(self, gate: str) -> None:
        threading.Thread(target=later, args=(gate,), daemon=True).start()

    def wait(self, gate: str) -> None:
        while not os.path.exists(gate):
            time.sleep(0.005)
        time.sleep(0.05)  # gives the thread of the job before its chance to print

    def descriptor(self, _: str) -> None:
        os.write(1, b"to fd 1\n")
        os.write(2, b"to fd 2\n")

    def child(self, _: str) -> None:
        subprocess.run([sys.executable, "-S", "-c", "print('from a child')"], check=True)

    def buffer(self, _: str) -> None:
        sys.stdout.buffer.write(b"bytes\n")
        sys.stdout.buffer.flush()

    def long(self, _: str) -> None:
        print("x" * 100_000)

    def attributes(self, _: str) -> None:
        print(sys.stdout.writable(), sys.stdout.isatty(), sys.stdout.encoding)

    def fails(self, _: str) -> None:
        print("before the end")
        raise ValueError("failed")

    def crash(self, _: str) -> None:
        print("goodbye")
        os._exit(5)
