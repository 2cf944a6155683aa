"""What nodes are started with: little of everything, as all of them share one machine."""

from pathlib import Path

# Lists are looked at often, so that nobody waits for that.
IO_SETTINGS = {"MEMORY": "1GiB", "TRAFFIC_MEMORY": "256MiB", "LAKE_CACHE": "64MiB", "SEGMENT": "8MiB"}
QUERY_SETTINGS = {"CORES": "1", "INDEX_CACHE": "128MiB", "METADATA_CACHE": "64MiB", "MEMBER_REFRESH": "200ms"}


def io(name: str, listen: str, metrics: str, drive: Path, size: str, table: str) -> list[str]:
    """An I/O node that serves `table` from the slab that it had, if any; without a RAM tier, so that drives are read."""
    return [
        "io", "--name", name, "--cores", "1", "--no-pin", "--ram-tier", "0", "--drive", f"{drive}:{size}",
        "--serve", table, "--listen", listen, "--metrics", metrics,
    ]  # fmt: skip


def query(name: str, listen: str, metrics: str, members: Path, table: str) -> list[str]:
    """A query node that follows the list; the table as NAME=URI."""
    return [
        "query", "--name", name, "--io-nodes-from", f"file:{members}", "--table", table,
        "--listen", listen, "--metrics", metrics,
    ]  # fmt: skip


def environment(tier: str, settings: dict[str, str]) -> dict[str, str]:
    """Settings as a node of that tier reads them."""
    return {f"BIREME_{tier.upper()}_{key}": value for key, value in settings.items()}
