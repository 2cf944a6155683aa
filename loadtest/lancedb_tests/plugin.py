"""A pytest plugin that runs those of LanceDB's own tests that tests.toml names through Bireme (redirect.py, mirror.py).

A test that passes without a request to a node fails: it has to be listed as one that is not run.
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import redirect  # noqa: F401
from mirror import mirror
from nodes import nodes

LISTED = tomllib.loads(Path(__file__).with_name("tests.toml").read_text(encoding="utf-8"))
reads_before = pytest.StashKey[int]()


def reasons(kind: str) -> dict[str, str]:
    """Returns the reason for each test of a kind, by the test's name, with or without its parameters."""
    return {test: group["reason"] for group in LISTED.get(kind, []) for test in group["tests"]}


def pytest_configure(config: pytest.Config) -> None:
    """Runs the listed files unless the command names others, and registers the mark that they use."""
    config.addinivalue_line("markers", "slow: of LanceDB's tests")
    if not any(argument.endswith(".py") or ".py::" in argument for argument in config.args):
        config.args[:] = LISTED["files"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the tests listed as excluded, and expects the tests listed as failing to fail."""
    excluded, failing = reasons("excluded"), reasons("failing")
    run, left_out, used = [], [], set()
    for item in items:
        names = {item.nodeid, item.nodeid.partition("[")[0]}
        used |= names
        if names & excluded.keys():
            left_out.append(item)
            continue
        for name in names & failing.keys():
            item.add_marker(pytest.mark.xfail(reason=failing[name], strict=True))
        run.append(item)
    unknown = (excluded.keys() | failing.keys()) - used
    if config.args == LISTED["files"] and unknown:
        raise pytest.UsageError(f"tests.toml names tests that are not there: {', '.join(sorted(unknown))}")
    config.hook.pytest_deselected(items=left_out)
    items[:] = run


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Records the number of reads before the test."""
    item.stash[reads_before] = nodes.reads
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fails a test if a node answered differently from the test's server, or if the test read nothing from a node."""
    mirror.problems.clear()
    result = yield
    if mirror.problems:
        pytest.fail("\n".join(mirror.problems), pytrace=False)
    if nodes.reads == item.stash[reads_before]:
        pytest.fail("it reads nothing through Bireme: list it in tests.toml as one that is not run", pytrace=False)
    return result
