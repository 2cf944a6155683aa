"""Docstrings, the README and the notebook: what they show is true."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import bireme

PACKAGE = Path(__file__).parents[1]
MODULES = ["bireme"] + [f"bireme.{it.name}" for it in pkgutil.iter_modules(bireme.__path__) if it.name != "_bireme"]


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name: str) -> None:
    ran = doctest.testmod(importlib.import_module(name))
    assert ran.failed == 0
    without_examples = ["_bireme", "_descriptions", "_event_loop"]
    assert ran.attempted > 0 or name.removeprefix("bireme.") in without_examples


def test_everything_public_is_documented() -> None:
    for name in bireme.__all__:
        public = getattr(bireme, name)
        assert public.__doc__, name
        members = vars(public).items() if isinstance(public, type) else []
        for member, value in members:
            if callable(value) and not member.startswith("_"):
                assert value.__doc__, f"{name}.{member}"


def test_the_readmes_lines_run(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    said = capsys.readouterr().out
    assert "southwester" in said
    assert "elephant" in said
    assert "5 ['elephant']" in said
