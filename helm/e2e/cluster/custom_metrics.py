"""Serves the custom metrics API for autoscalers from the pods' own metrics, in place of a Prometheus adapter.

Each request scrapes the pods. The API server forwards requests and authorizes them."""

import json
import ssl
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from ..process import Failed, run, until
from . import api_service
from .addresses import HOST, METRICS_PORT
from .pki import PKI

PORT = 4444
GROUP, VERSION = "custom.metrics.k8s.io", "v1beta2"
BASE = f"/apis/{GROUP}/{VERSION}"

# A function that gets a pod's name and its metrics as text, and returns a metric's value, or None if it has none yet.
Value = Callable[[str, str], float | None]


class CustomMetrics:
    """A server on the host, from its creation until `stop()`."""

    def __init__(self, metrics: dict[str, Value]):
        self.metrics = metrics
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(PKI / "apiserver.crt", PKI / "apiserver.key")
        self.server = ThreadingHTTPServer((HOST, PORT), self.handler())
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        api_service.register("custom-metrics", PORT, GROUP, VERSION)
        until("custom metrics", lambda: run("kubectl", "get", "--raw", BASE))

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def handler(self) -> type[BaseHTTPRequestHandler]:
        answer = self.answer

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                try:
                    code, said = answer(urllib.parse.urlsplit(self.path))
                except (Failed, OSError) as error:
                    code, said = 503, {"kind": "Status", "apiVersion": "v1", "code": 503, "message": str(error)}
                body = json.dumps(said).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_) -> None:
                pass

        return Handler

    def answer(self, url: urllib.parse.SplitResult) -> tuple[int, dict]:
        parts = urllib.parse.unquote(url.path).strip("/").split("/")
        if url.path.rstrip("/") == BASE:
            return 200, self.resources()
        # The parts are: apis, group, version, namespaces, namespace, pods, `*`, metric.
        if len(parts) == 8 and parts[3::2] == ["namespaces", "pods", parts[7]] and parts[7] in self.metrics:
            selector = urllib.parse.parse_qs(url.query).get("labelSelector", [""])[0]
            return 200, self.values(parts[4], selector, parts[7])
        return 404, {"kind": "Status", "apiVersion": "v1", "code": 404, "message": f"there is no {url.path}"}

    def resources(self) -> dict:
        found = [{"name": f"pods/{name}", "singularName": "", "namespaced": True, "kind": "MetricValueList",
                  "verbs": ["get"]} for name in self.metrics]
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/{VERSION}", "resources": found}

    def values(self, namespace: str, selector: str, metric: str) -> dict:
        listed = json.loads(run("kubectl", "-n", namespace, "get", "pods", "-l", selector, "-o", "json"))["items"]
        now, items = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), []
        for pod in listed:
            name, address = pod["metadata"]["name"], pod["status"].get("podIP")
            value = self.metrics[metric](name, scrape(address)) if address else None
            if value is not None:
                whose = {"kind": "Pod", "apiVersion": "/v1", "namespace": namespace, "name": name}
                items.append({"describedObject": whose, "metric": {"name": metric}, "timestamp": now,
                              "value": f"{round(1000 * value)}m"})
        return {"kind": "MetricValueList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}, "items": items}


def scrape(address: str) -> str:
    """Returns the pod's metrics; empty if the pod does not serve."""
    try:
        with urllib.request.urlopen(f"http://{address}:{METRICS_PORT}/metrics", timeout=5) as answer:
            return answer.read().decode()
    except OSError:
        return ""
