"""A little of everything that callers do, for as long as it is wanted."""

from contextlib import contextmanager

from e2e.process import Background, Failed

from .nodes import TABLE, Nodes

# So that it goes on for longer than anybody looks; it is stopped.
SECONDS = "600"
BENCHES = {
    "search": ["search", TABLE, "--rate", "10"],
    "filtered": ["search", TABLE, "--rate", "2", "--filter", "domain = 13"],
    "get": ["get", TABLE, "--rate", "10"],
    "take": ["take", TABLE, "--rate", "5", "--rows", "50"],
}


@contextmanager
def on(nodes: Nodes):
    """Rates so low that debug builds on a busy machine keep up."""
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
    """An error, for those who count them."""
    try:
        nodes.ask("get", TABLE, "no such synset", "--endpoint", nodes.endpoint)
    except Failed:
        pass
