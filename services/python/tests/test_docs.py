"""Docstrings, the README and the notebook: what they show is true."""

import base64
import doctest
import importlib
import os
import pkgutil
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import bireme

PACKAGE = Path(__file__).parents[1]
MODULES = ["bireme"] + [f"bireme.{it.name}" for it in pkgutil.iter_modules(bireme.__path__) if it.name != "_bireme"]


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name: str) -> None:
    ran = doctest.testmod(importlib.import_module(name))
    assert ran.failed == 0
    without_examples = ["_bireme", "_descriptions", "_event_loop", "_target"]
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


def test_the_notebook_runs(folder: Path, tmp_path: Path) -> None:
    """Its plots are written to the folder that PLOTS names, to be looked at."""
    plots = Path(os.environ.get("PLOTS", tmp_path))
    notebook = nbformat.read(PACKAGE / "examples/wordnet.ipynb", as_version=4)
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    images = [output.data["image/png"] for output in outputs if "image/png" in output.get("data", {})]
    assert len(images) == 2
    for number, image in enumerate(images):
        (plots / f"wordnet-{number}.png").write_bytes(base64.b64decode(image))
    said = "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")
    recall = re.search(r"default settings: recall ([0-9.]+)", said)
    assert recall is not None
    assert float(recall[1]) >= 0.9, said
