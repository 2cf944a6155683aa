"""Where k6 asks who is there, and says how far its load is: HTTP, as that is what it speaks besides gRPC."""

import json
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tiers.fault import Failed


class Teller:
    """`with Teller(…) as teller: …`; GET /at/2 is asked by a load in its third stage, /report once it is over."""

    def __init__(self, who: Callable[[], dict], report: Callable[[], list]) -> None:
        self.reached, self.moved = -1, threading.Condition()

        class Asked(BaseHTTPRequestHandler):
            """One question."""

            # Callers keep their connections.
            protocol_version = "HTTP/1.1"

            def do_GET(asked) -> None:
                try:
                    match asked.path.split("/")[1:]:
                        case ["at", stage] if stage.isdecimal():
                            self._at(int(stage))
                            asked.answer(HTTPStatus.OK, who())
                        case ["report"]:
                            asked.answer(HTTPStatus.OK, report())
                        case _:
                            asked.answer(HTTPStatus.NOT_FOUND, None)
                except Failed as problem:
                    asked.answer(HTTPStatus.SERVICE_UNAVAILABLE, str(problem))

            def answer(asked, status: HTTPStatus, what: object) -> None:
                body = json.dumps(what).encode()
                asked.send_response(status)
                asked.send_header("Content-Type", "application/json")
                asked.send_header("Content-Length", str(len(body)))
                asked.end_headers()
                asked.wfile.write(body)

            def log_message(asked, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Asked)
        self.server.daemon_threads = True

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> "Teller":
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def wait_for(self, stage: int) -> None:
        """Until the load has got there."""
        with self.moved:
            self.moved.wait_for(lambda: self.reached >= stage)

    def _at(self, stage: int) -> None:
        with self.moved:
            self.reached = max(self.reached, stage)
            self.moved.notify_all()
