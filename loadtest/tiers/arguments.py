"""The nodes' command lines and settings. They use little memory and CPU, because all of them share one machine."""

from pathlib import Path

IO_SETTINGS = {"MEMORY": "1GiB", "SEGMENT": "8MiB"}
QUERY_SETTINGS = {"CORES": "1", "INDEX_CACHE": "128MiB"}


def io(name: str, listen: str, metrics: str, drive: Path, size: str, table: str) -> list[str]:
    """Returns an I/O node's command line. An existing slab is kept. The RAM tier is off, so that drives are read."""
    return [
        "io", "--name", name, "--cores", "1", "--no-pin", "--ram-tier", "0", "--drive", f"{drive}:{size}",
        "--serve", table, "--listen", listen, "--metrics", metrics,
    ]  # fmt: skip


def query(name: str, listen: str, metrics: str, members: Path, table: str) -> list[str]:
    """Returns the command line of a query node that follows the list `members`. `table` is NAME=URI."""
    return [
        "query", "--name", name, "--io-nodes-from", f"file:{members}", "--table", table,
        "--listen", listen, "--metrics", metrics,
    ]  # fmt: skip


def environment(tier: str, settings: dict[str, str]) -> dict[str, str]:
    """Returns the settings as environment variables of a node of that tier."""
    return {f"BIREME_{tier.upper()}_{key}": value for key, value in settings.items()}
