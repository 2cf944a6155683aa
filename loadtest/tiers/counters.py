"""Reads a node's counters from its /metrics."""

import http.client
import re

LINE = re.compile(r"^(\w+?)(?:\{(.*)\})? ([^ ]+)$")
REQUESTS, SECONDS = "rpc_server_call_duration_seconds_count", "rpc_server_call_duration_seconds_sum"
FALLBACK = "bireme_query_fallback_rows_total"
IO_ROWS, IO_FROM_TABLE = "bireme_io_rows_total", "bireme_io_rows_from_table_total"
WATCHED = {REQUESTS, SECONDS, FALLBACK, IO_ROWS, IO_FROM_TABLE}

# Parts of the names of RPCs that do not count as requests: health, reflection, and status.
NO_REQUESTS = ["grpc.", "/Status"]


def scrape(host: str, port: int) -> dict[str, float]:
    """Returns the watched counters, summed over all labels."""
    connection = http.client.HTTPConnection(host, port, timeout=2)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    sums: dict[str, float] = {}
    for line in text.splitlines():
        found = LINE.match(line)
        if found and found[1] in WATCHED and not any(it in (found[2] or "") for it in NO_REQUESTS):
            sums[found[1]] = sums.get(found[1], 0.0) + float(found[3])
    return sums
