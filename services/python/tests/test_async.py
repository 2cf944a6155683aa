"""asyncio: the same answers, and calls that end on the server when they are cancelled."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest

import bireme
from conftest import ELEPHANT


def test_every_call_can_be_awaited(words: bireme.Table, rows: pa.Table) -> None:
    async def check() -> None:
        db = await bireme.connect_async()
        table = db.table("words")
        vector = np.array(rows["vector"][ELEPHANT].as_py(), dtype=np.float32)
        search = table.search(vector).select("synset").limit(3)
        assert await search.to_arrow() == words.search(vector).select("synset").limit(3).to_arrow()
        assert (await search.to_pandas())["synset"][0] == "n02503517"
        assert (await search.to_polars())["synset"][0] == "n02503517"
        assert (await search.to_list())[0]["synset"] == "n02503517"
        assert (await search.explain()).rows == 3
        assert await table.get("n02503517") == words.get("n02503517")
        assert await table.get("n00000000") is None
        assert await table.get(["n02503517"]) == words.get(["n02503517"])
        every = await table.get(5, key_column="domain", all_rows=True)
        assert every == words.get(5, key_column="domain", all_rows=True)
        partial = await table.get(["n0", "n02503517"], partial=True)
        assert partial == words.get(["n0", "n02503517"], partial=True)
        assert await table.exists("n02503517")
        assert (await table.exists(["n0", "n02503517"])).to_pylist() == [False, True]
        assert await table.take([1, 0]) == words.take([1, 0])
        assert await table.lookup(["n0", "n02503517"]) == words.lookup(["n0", "n02503517"])
        warmed = await table.warm(progress=False)
        assert warmed.extents_done == warmed.extents_total
        assert await table.describe() == words.describe()
        assert await table.count_rows("pos = 'verb'") == words.count_rows("pos = 'verb'")
        assert [summary.name for summary in await db.tables()] == ["words"]
        assert len((await db.status()).io_nodes) == 1

    asyncio.run(check())


def test_many_calls_are_under_way_at_once(rows: pa.Table) -> None:
    keys = rows["synset"].to_pylist()[:4000]

    async def check() -> None:
        table = (await bireme.connect_async()).table("words")
        found = await asyncio.gather(*(table.get(key, columns=["synset"]) for key in keys))
        assert [row and row["synset"] for row in found] == keys

    # Each event loop has its own completions.
    asyncio.run(check())
    asyncio.run(check())


def test_the_event_loop_runs_while_a_stream_is_read() -> None:
    clicks = pa.record_batch({"key": ["n02503517"], "click": [1]})

    async def check() -> None:
        table = (await bireme.connect_async()).table("words")
        running = threading.Event()

        def batches() -> Iterator[pa.RecordBatch]:
            assert running.wait(10), "the event loop does not run"
            yield clicks

        asyncio.get_running_loop().call_soon(running.set)
        stream = pa.RecordBatchReader.from_batches(clicks.schema, batches())
        joined = await table.lookup(stream, on="key", columns=["pos"])
        assert joined.to_pylist() == [{"key": "n02503517", "click": 1, "pos": "noun"}]

    asyncio.run(check())


def test_an_error_is_raised_where_it_is_awaited() -> None:
    async def check() -> None:
        table = (await bireme.connect_async()).table("words")
        found = await asyncio.gather(table.get("n02503517", columns=["x"]), table.describe(), return_exceptions=True)
        assert isinstance(found[0], bireme.BadRequestError)
        assert found[0].reason == "COLUMN_NOT_FOUND"
        assert isinstance(found[1], bireme.TableDescription)
        with pytest.raises(TimeoutError):
            await (await bireme.connect_async(timeout=1e-6)).status()
        assert await (await bireme.connect_async(timeout=sys.maxsize)).table("words").exists("n02503517")

    asyncio.run(check())


class Requests:
    """Counts the requests that have ended on the server, besides its own."""

    def __init__(self, server: bireme.Server) -> None:
        self._server = server
        self._first = server.status().requests
        self._own = 0

    def ended(self) -> int:
        self._own += 1
        return self._server.status().requests - self._first - self._own

    def wait(self, count: int) -> None:
        """Waits until so many requests have ended."""
        until = time.monotonic() + 5
        while (ended := self.ended()) < count:
            assert time.monotonic() < until, f"{ended} requests have ended, not {count}"
            time.sleep(0.05)


#: A warm at this rate does not end during a test.
SLOW = "bytes_per_s=1"


@pytest.fixture
def cold() -> Callable[[], bireme.Server]:
    """Starts a server whose cache is empty."""
    return lambda: bireme.serve("words.lance")


def test_a_cancelled_task_ends_its_call_on_the_server(cold: Callable[[], bireme.Server]) -> None:
    async def check(server: bireme.Server) -> None:
        db = await bireme.connect_async(server.endpoint)
        requests = Requests(server)
        task = asyncio.create_task(db.table("words").warm(bytes_per_s=1, progress=False))
        await asyncio.sleep(1)
        assert requests.ended() == 0, "the warm has not ended"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        requests.wait(1)
        # The connection can still be used.
        assert await db.table("words").exists("n02503517")

    with cold() as server:
        asyncio.run(check(server))


@pytest.mark.parametrize("call", [f"words.warm({SLOW}, progress=False)", f"asyncio.run(warm({SLOW}, progress=False))"])
def test_ctrl_c_ends_the_call_on_the_server(cold: Callable[[], bireme.Server], call: str) -> None:
    script = f"""
import asyncio, bireme
words = bireme.connect().table("words")
async def warm(**arguments):
    await (await bireme.connect_async()).table("words").warm(**arguments)
print("ready", flush=True)
try:
    {call}
except KeyboardInterrupt:
    print("interrupted", flush=True)
import time
time.sleep(60)
"""
    with cold() as server:
        requests = Requests(server)
        environment = {**os.environ, "BIREME_ENDPOINT": server.endpoint}
        process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment, text=True)
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            time.sleep(1)
            assert requests.ended() == 0, "the warm has not ended"
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "interrupted\n"
            # The process still runs, so the call did not end because the process did.
            requests.wait(1)
            assert process.poll() is None
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def test_a_passed_time_limit_ends_the_call_on_the_server(cold: Callable[[], bireme.Server]) -> None:
    with cold() as server:
        requests = Requests(server)
        began = time.monotonic()
        with pytest.raises(bireme.DeadlineError):
            server.table("words").warm(bytes_per_s=1, progress=False, timeout=0.5)
        assert time.monotonic() - began < 3
        requests.wait(1)
