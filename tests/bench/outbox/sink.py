"""A broker that accepts everything at once and stores only ids: the upper bound for a sender.
`python -m tests.bench.outbox.sink` prints its port."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

BROKER_ID = "b" * 32


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    taken: set[str] = set()

    def do_GET(self) -> None:
        """A client asks which broker this is before it signs anything."""
        reply = {"error": "for another broker", "code": "WRONG_BROKER",
                "details": {"broker_id": BROKER_ID}}  # fmt: skip
        self._answer(401, reply)

    def do_POST(self) -> None:
        content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "items" in content:
            results = [self._take(item) for item in content["items"]]
            status, reply = 200, {"results": [{"status": s, "body": b} for s, b in results]}
        else:
            status, reply = self._take(content)
        self._answer(status, reply)

    def _answer(self, status: int, reply: dict[str, Any]) -> None:
        body = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _take(self, item: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        client_id = item["client_message_id"]
        is_duplicate = client_id in self.taken
        self.taken.add(client_id)
        reply = {
            "client_message_id": client_id,
            "broker_message_id": f"bm_{client_id}",
            "history_id": f"h_{client_id}",
            "duplicate": is_duplicate,
        }
        return (200 if is_duplicate else 201), reply

    def log_message(self, *_args: Any) -> None:
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
