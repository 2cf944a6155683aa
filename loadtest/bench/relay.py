"""A relay in front of an object store, which answers as late as a store that is far away: `python -m bench.relay`.

Each request waits before it is sent on, and each answer is at most as fast as `--mb-per-s`. Requests and the bytes of
answers are counted, and so are the requests for a table's versions; GET /relay returns the counts as JSON, and is not
sent on. Only requests without a body are relayed: the store is written to directly.
"""

import argparse
import asyncio
import json
import math
import random
import time

PIECE = 64 << 10
# The standard deviation of a lognormal distribution whose 99th percentile is 200 ms and whose median is 30 ms:
# ln(200 / 30) / 2.326.
SIGMA = 0.8156


class Relay:
    """The counts, and the settings of a relay."""

    def __init__(self, upstream: int, latency_ms: float, spread: bool, mb_per_s: float) -> None:
        self.upstream, self.latency_ms, self.spread = upstream, latency_ms, spread
        self.seconds_per_byte = 1e-6 / mb_per_s
        self.requests = self.of_versions = self.bytes = 0
        self.random = random.Random(1)

    def wait(self) -> float:
        """Returns the seconds that a request waits."""
        spread = math.exp(self.random.gauss(0, SIGMA)) if self.spread else 1.0
        return self.latency_ms / 1e3 * spread

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relays the requests of one connection, one after the other."""
        upstream = None
        try:
            while head := await _head(reader):
                method, path, _ = head.split(b" ", 2)
                if path == b"/relay":
                    counts = {"requests": self.requests, "of_versions": self.of_versions, "bytes": self.bytes}
                    text = json.dumps(counts).encode()
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(text), text))
                    await writer.drain()
                    continue
                self.requests += 1
                # A manifest, or a list of them, which names the folder in its query.
                self.of_versions += b"_versions" in path
                await asyncio.sleep(self.wait())
                if upstream is None:
                    upstream = await asyncio.open_connection("127.0.0.1", self.upstream)
                upstream[1].write(head)
                await self._answer(method, upstream[0], writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            # One of the two sides has gone.
            pass
        finally:
            writer.close()
            if upstream:
                upstream[1].close()

    async def _answer(self, method: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await _head(reader)
        writer.write(head)
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
        has_no_body = method == b"HEAD" or head.split(b" ", 2)[1] in (b"204", b"304")
        began, sent = time.monotonic(), 0
        async for piece in _body(reader, fields, has_no_body):
            writer.write(piece)
            await writer.drain()
            sent += len(piece)
            early = sent * self.seconds_per_byte - (time.monotonic() - began)
            if early > 1e-3:
                await asyncio.sleep(early)
        self.bytes += sent
        await writer.drain()


async def _head(reader: asyncio.StreamReader) -> bytes:
    """Returns the lines before a body; empty at the end of a connection."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return b""


async def _body(reader: asyncio.StreamReader, fields: dict, has_no_body: bool):  # noqa: ANN202
    if has_no_body:
        return
    if b"chunked" in fields.get(b"transfer-encoding", b""):
        while True:
            line = await reader.readuntil(b"\r\n")
            yield line + await reader.readexactly(int(line, 16) + 2)
            if int(line, 16) == 0:
                return
    left = int(fields.get(b"content-length", 0))
    while left:
        piece = await reader.read(min(left, PIECE))
        if not piece:
            raise ConnectionError("the store's answer breaks off")
        left -= len(piece)
        yield piece


async def main() -> None:
    """See --help."""
    parser = argparse.ArgumentParser(prog="bench.relay", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--upstream", type=int, required=True, help="the store's port on loopback")
    parser.add_argument("--latency-ms", type=float, default=30.0, help="the time that each request waits, or its median")
    parser.add_argument("--spread", action="store_true", help="waits vary like those of S3: their 99th percentile is 200 ms")
    parser.add_argument("--mb-per-s", type=float, default=90.0, help="the rate of an answer")
    it = parser.parse_args()
    relay = Relay(it.upstream, it.latency_ms, it.spread, it.mb_per_s)
    server = await asyncio.start_server(relay.serve, "127.0.0.1", it.port, limit=1 << 20)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
