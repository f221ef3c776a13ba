"""Sleeps 10 ms per call of up to 16 items, as a LitServe server: `python batch.py PORT`."""

import sys
import time

from litserve import LitAPI, LitServer

CALL_S = 0.01


class Batch(LitAPI):
    def setup(self, device: str) -> None:
        pass

    def decode_request(self, request: dict[str, dict[str, str]]) -> str:
        return request["input"]["text"]

    def predict(self, texts: list[str]) -> list[str]:
        time.sleep(CALL_S)
        return texts

    def encode_response(self, output: str) -> dict[str, str]:
        return {"output": output, "status": "succeeded"}


if __name__ == "__main__":
    api = Batch(max_batch_size=16, batch_timeout=0.005)
    server = LitServer(api, accelerator="cpu")
    server.run(host="127.0.0.1", port=int(sys.argv[1]), generate_client_file=False, log_level="error")
