"""Runs Redis, as Debian packages it, beside the look-ups: keys of 16 bytes, values of 100 bytes, in memory, nothing
persisted."""

import csv
import subprocess
import tempfile
import time

from .bireme import free_port
from .cpu import children_us, process_us

# The server's binary under another name, from Debian's package redis-tools. It acts as the server if it is started with
# the server's name. The package redis-server would also start a service.
SERVER = "/usr/bin/redis-check-rdb"
CONNECTIONS = 50
VALUE = "x" * 100
START_SECONDS = 30


class Redis:
    """A server with `keys` keys, those that `redis-benchmark -r` asks for. Use as a context manager."""

    def __init__(self, keys: int) -> None:
        self.keys = keys
        self.port = free_port()
        self.folder = tempfile.TemporaryDirectory(prefix="bireme-bench-redis-")

    def __enter__(self) -> "Redis":
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        command = ["redis-server", *options, "--dir", self.folder.name]
        self.process = subprocess.Popen(command, executable=SERVER, stdout=subprocess.DEVNULL)
        until = time.monotonic() + START_SECONDS
        while subprocess.run([*self._client("redis-cli"), "ping"], capture_output=True).stdout != b"PONG\n":
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError("redis-server did not start")
            time.sleep(0.1)
        # Send the protocol of Redis, because running a command for each key would take minutes.
        sets = (f"*3\r\n$3\r\nSET\r\n$16\r\nkey:{key:012}\r\n$100\r\n{VALUE}\r\n".encode() for key in range(self.keys))
        loading = subprocess.Popen([*self._client("redis-cli"), "--pipe"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        loading.stdin.writelines(sets)
        loading.stdin.close()
        failed = loading.wait()
        size = subprocess.run([*self._client("redis-cli"), "dbsize"], capture_output=True, text=True)
        if failed or int(size.stdout) != self.keys:
            raise RuntimeError(f"Redis has {size.stdout.strip()} of {self.keys} keys")
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(60)
        self.folder.cleanup()

    def _client(self, name: str) -> list[str]:
        return [name, "-h", "127.0.0.1", "-p", str(self.port)]

    def get(self, requests: int, pipelined: int) -> dict:
        """Gets random keys on 50 connections, with `pipelined` requests in flight on each. CPU includes the client."""
        load = ["-t", "get", "-r", str(self.keys), "-n", str(requests), "-c", str(CONNECTIONS), "-P", str(pipelined), "--csv"]
        command = [*self._client("redis-benchmark"), *load]
        before = process_us(self.process.pid) + children_us()
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        cpu_us = process_us(self.process.pid) + children_us() - before
        [report] = csv.DictReader(done.stdout.splitlines())
        return {
            "command": " ".join(command),
            "keys_per_s": float(report["rps"]),
            "keys_per_core_s": requests / cpu_us * 1e6,
            "latency_us": {part: 1e3 * float(report[f"{part}_latency_ms"]) for part in ("p50", "p99")},
        }
