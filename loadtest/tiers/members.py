"""The list of I/O nodes that query nodes follow: a file."""

from pathlib import Path


def entry(name: str, endpoint: str, **more: object) -> str:
    """A member, as the list has it."""
    lines = ["[[io_nodes]]", f'name = "{name}"', f'endpoint = "{endpoint}"']
    lines += [f"{key} = {value}" for key, value in more.items()]
    return "\n".join(lines) + "\n"


def write(file: Path, text: str) -> None:
    """Another list, by a rename as it should be."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.rename(file)
