"""Sleeps 10 ms per call of up to 16 items, as a mosec service: `python batch.py --port N`."""

import time

from mosec import Server, Worker

CALL_S = 0.01


class Batch(Worker):
    def forward(self, data: list[dict[str, dict[str, str]]]) -> list[dict[str, str]]:
        time.sleep(CALL_S)
        return [{"output": item["input"]["text"], "status": "succeeded"} for item in data]


if __name__ == "__main__":
    server = Server()
    server.append_worker(Batch, num=1, max_batch_size=16, max_wait_time=5)
    server.run()
