"""Panels that several dashboards share. A dashboard passes its own title or description where that is clearer."""

from .panel import Panel, lines
from .query import Selection

CALLS, RPC = "rpc_server_call_duration_seconds", 'rpc_method=~"bireme.*|http/.*"'


def calls_p99(of: Selection, title: str, description: str) -> Panel:
    return lines(title, "s", description, (of.quantile(0.99, CALLS, RPC, "rpc_method"), "{{rpc_method}}"))


def failures(of: Selection, description: str) -> Panel:
    return lines(
        "Errors", "reqps", description, (of.rate("bireme_query_failures_total", by="error_type"), "{{error_type}}")
    )


def members(of: Selection, title: str, description: str) -> Panel:
    return lines(title, "short", description, (f"min by (state) ({of('bireme_query_io_nodes')})", "{{state}}"))


def drive_writes(of: Selection, description: str) -> Panel:
    return lines(
        "Bytes written",
        "Bps",
        description,
        (of.rate("bireme_io_fills_written_bytes_total"), "filled"),
        (of.rate("bireme_io_fills_kept_bytes_total"), "kept"),
        (of.rate("bireme_io_drives_written_bytes_total"), "written"),
    )


def store(of: Selection) -> Panel:
    return lines(
        "Object store",
        "reqps",
        "Requests per second, by kind; requests that failed, were refused before they were sent, or were sent twice.",
        (of.rate("bireme_store_requests_total", by="kind"), "{{kind}}"),
        (of.rate("bireme_store_failures_total"), "failed"),
        (of.rate("bireme_store_refused_total"), "refused"),
        (of.rate("bireme_store_hedged_total"), "hedged"),
    )
