"""Applies a light load of all kinds of requests to the nodes."""

from contextlib import contextmanager

from e2e.process import Background, Failed

from .nodes import TABLE, Nodes

# Longer than the run; the load is stopped at its end.
SECONDS = "600"
BENCHES = {
    "search": ["search", TABLE, "--rate", "10"],
    "filtered": ["search", TABLE, "--rate", "2", "--filter", "domain = 13"],
    "get": ["get", TABLE, "--rate", "10"],
    "take": ["take", TABLE, "--rate", "5", "--rows", "50"],
}


@contextmanager
def running(nodes: Nodes):
    """Runs the load inside a `with` block. Rates are low enough for debug builds on a busy machine."""
    at = ["--endpoint", nodes.endpoint]
    load = [Background(f"load-{name}", nodes.bireme, "bench", *words, "--seconds", SECONDS, *at)
            for name, words in BENCHES.items()]
    try:
        nodes.ask("search", TABLE, "--text", "storm at sea", "-k", 3, *at)
        nodes.ask("warm", TABLE, *at)
        not_found(nodes)
        yield
    finally:
        for process in load:
            process.stop(patience=2)


def not_found(nodes: Nodes) -> None:
    """Makes a request that fails, so that error metrics have a value."""
    try:
        nodes.ask("get", TABLE, "no such synset", "--endpoint", nodes.endpoint)
    except Failed:
        pass
