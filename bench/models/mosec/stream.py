"""The token stream as a mosec service: `python stream.py --port N`."""

import json

from mosec import Server, SSEWorker


class Tokens(SSEWorker):
    def forward(self, data: dict[str, dict[str, int]]) -> str:
        for index in range(data["input"]["tokens"]):
            self.send_stream_event(json.dumps({"chunk": f"token{index} ", "index": index}))
        return ""


if __name__ == "__main__":
    server = Server()
    server.append_worker(Tokens, num=1)
    server.run()
