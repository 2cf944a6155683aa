"""Writes the file that lists I/O nodes for query nodes."""

from pathlib import Path


def entry(name: str, endpoint: str, **more: object) -> str:
    """Returns a member's entry in the list."""
    lines = ["[[io_nodes]]", f'name = "{name}"', f'endpoint = "{endpoint}"']
    lines += [f"{key} = {value}" for key, value in more.items()]
    return "\n".join(lines) + "\n"


def write(file: Path, text: str) -> None:
    """Replaces the list by a rename, so that readers never see part of it."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.rename(file)
