"""`bireme.serve`: the nodes start, end with the connection, and say why they don't start."""

import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import bireme


def test_nodes_end_with_the_block(folder: Path) -> None:
    with bireme.serve({"a": "words.lance", "b": folder / "words.lance"}) as db:
        assert [table.name for table in db.tables()] == ["a", "b"]
        process = db._end.peek()[1].__self__._process
        assert process.poll() is None
        cache = db._end.peek()[1].__self__._folder
        assert cache.exists()
    assert process.returncode == 0
    assert not cache.exists()
    with pytest.raises(bireme.UnavailableError):
        db.tables()
    db.close()


@pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "del db; import gc; gc.collect(); print('collected')"])
def test_nodes_end_with_the_process(folder: Path, end: str) -> None:
    script = f"import bireme\ndb = bireme.serve('words.lance')\nprint(db._end.peek()[1].__self__._process.pid)\n{end}"
    ran = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=folder)
    pid = int(ran.stdout.split()[0])
    until = time.monotonic() + 5
    while os.path.exists(f"/proc/{pid}"):
        assert time.monotonic() < until, "the nodes still run"
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    """Returns whether a process runs. One that has ended may still wait for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("signal", ["SIGKILL", "SIGTERM"])
def test_nodes_end_with_a_process_that_a_signal_ends(folder: Path, signal: str) -> None:
    script = "import bireme, os, signal\ndb = bireme.serve('words.lance')\nrunning = db._end.peek()[1].__self__\n"
    script += "print(running._process.pid, running._folder, flush=True)\n"
    script += f"assert os.path.exists(running._folder / 'slab')\nos.kill(os.getpid(), signal.{signal})"
    ran = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=folder)
    assert ran.returncode < 0
    pid, cache = ran.stdout.split()
    until = time.monotonic() + 15
    while is_running(int(pid)) or os.path.exists(cache):
        assert time.monotonic() < until, "the nodes still run, or their cache is there"
        time.sleep(0.05)


def test_a_table_keeps_its_nodes(folder: Path) -> None:
    words = bireme.serve("words.lance").table("words")
    gc.collect()
    assert words.exists("n02503517")
    search = words.search("elephant").limit(1)
    pid = words._connection._end.peek()[1].__self__._process.pid
    del words
    gc.collect()
    assert len(search.to_list()) == 1
    del search
    gc.collect()
    assert not is_running(pid)


def test_a_missing_binary_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BIREME_BINARY")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(bireme.NotFoundError, match="no `bireme` on the PATH") as raised:
        bireme.serve("words.lance")
    assert raised.value.reason == "BINARY_NOT_FOUND"
    monkeypatch.setenv("BIREME_BINARY", "/nowhere/bireme")
    with pytest.raises(bireme.NotFoundError, match="/nowhere/bireme can't be run: No such file"):
        bireme.serve("words.lance")


def test_a_table_that_can_not_be_served_is_named() -> None:
    with pytest.raises(bireme.Error, match=r"no-such\.lance"):
        bireme.serve("no-such.lance")
    with pytest.raises(bireme.BadRequestError, match="names no table"):
        bireme.serve("/")
    with pytest.raises(TimeoutError, match="start_timeout"):
        bireme.serve("words.lance", start_timeout=0)


def test_a_connection_outlasts_a_restart_of_the_node(folder: Path, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    command = [os.environ["BIREME_BINARY"], "up", "--table", "words=words.lance", "--allow-buffered"]
    command += ["--cache-dir", str(tmp_path / "cache"), "--ready-file", str(ready)]
    at = "127.0.0.1:0"
    db = None
    for _ in range(2):
        node = subprocess.Popen([*command, "--listen", at], cwd=folder, stdout=subprocess.DEVNULL)
        try:
            until = time.monotonic() + 60
            while not ready.exists():
                assert node.poll() is None
                assert time.monotonic() < until
                time.sleep(0.05)
            at = json.loads(ready.read_text())["query"].removeprefix("http://")
            db = db or bireme.connect(at)
            assert db.table("words").exists("n02503517")
        finally:
            node.terminate()
            node.wait()
        with pytest.raises(bireme.UnavailableError):
            db.table("words").exists("n02503517")
