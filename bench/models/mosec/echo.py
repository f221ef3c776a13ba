"""The echo as a mosec service, one worker, no batching: `python echo.py --port N`."""

from mosec import Server, Worker


class Echo(Worker):
    def forward(self, data: dict[str, dict[str, str]]) -> dict[str, str]:
        return {"output": data["input"]["text"], "status": "succeeded"}


if __name__ == "__main__":
    server = Server()
    server.append_worker(Echo, num=1)
    server.run()
