"""Tells k6 which nodes to use, and learns from it which stage the load has reached. It serves HTTP, because k6 speaks
HTTP and gRPC only."""

import json
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tiers.fault import Failed


class StageServer:
    """`with StageServer(…) as server: …`. A load in its third stage requests /at/2, and after its end /report."""

    def __init__(self, endpoints: Callable[[], dict], report: Callable[[], list]) -> None:
        self.reached, self.moved = -1, threading.Condition()

        class Handler(BaseHTTPRequestHandler):
            """Handles one connection. Its methods call it `handler`, as `self` is the server."""

            # HTTP/1.1 keeps callers' connections open.
            protocol_version = "HTTP/1.1"

            def do_GET(handler) -> None:
                try:
                    match handler.path.split("/")[1:]:
                        case ["at", stage] if stage.isdecimal():
                            self._at(int(stage))
                            handler.answer(HTTPStatus.OK, endpoints())
                        case ["report"]:
                            handler.answer(HTTPStatus.OK, report())
                        case _:
                            handler.answer(HTTPStatus.NOT_FOUND, None)
                except Failed as problem:
                    handler.answer(HTTPStatus.SERVICE_UNAVAILABLE, str(problem))

            def answer(handler, status: HTTPStatus, what: object) -> None:
                body = json.dumps(what).encode()
                handler.send_response(status)
                handler.send_header("Content-Type", "application/json")
                handler.send_header("Content-Length", str(len(body)))
                handler.end_headers()
                handler.wfile.write(body)

            def log_message(handler, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True

    @property
    def url(self) -> str:
        """The server's URL."""
        return f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> "StageServer":
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def wait_for(self, stage: int) -> None:
        """Waits until the load has reached the stage."""
        with self.moved:
            self.moved.wait_for(lambda: self.reached >= stage)

    def _at(self, stage: int) -> None:
        with self.moved:
            self.reached = max(self.reached, stage)
            self.moved.notify_all()
