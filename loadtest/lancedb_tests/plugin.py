"""A pytest plugin that runs LanceDB's own tests through Bireme (redirect.py, mirror.py), those that tests.toml names.

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
    """The reason for each test of a kind, by the test's name, with or without its parameters."""
    return {test: group["reason"] for group in LISTED.get(kind, []) for test in group["tests"]}


def pytest_configure(config: pytest.Config) -> None:
    """Runs the listed files, unless the command names others, with the marks that they have."""
    config.addinivalue_line("markers", "slow: of LanceDB's tests")
    if not any(argument.endswith(".py") or ".py::" in argument for argument in config.args):
        config.args[:] = LISTED["files"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the tests that are not run, and expects those that are known to fail to do so."""
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
    """Notes how much was read before the test."""
    item.stash[reads_before] = nodes.reads
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fails a test that a node has answered otherwise than the test's server, or that has read nothing through a node."""
    mirror.problems.clear()
    result = yield
    if mirror.problems:
        pytest.fail("\n".join(mirror.problems), pytrace=False)
    if nodes.reads == item.stash[reads_before]:
        pytest.fail("it reads nothing through Bireme: list it in tests.toml as one that is not run", pytrace=False)
    return result
