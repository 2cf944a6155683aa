"""Both tiers at a glance."""

from . import shared
from .dashboard import Dashboard, of_label
from .panel import Row, figure, lines, stacked
from .query import Selection
from .shared import CALLS, RPC

of = Selection('namespace=~"$namespace"')
SEARCH = 'rpc_method="bireme.query.v1.QueryService/Search"'
# What fails through no fault of who asks.
OWN = (
    'error_type=~"STORE_UNREACHABLE|STORE_REFUSED|TABLE_DAMAGED|BAD_PROTOCOL|DEADLINE_EXCEEDED|NODE_UNAVAILABLE|'
    'INTERNAL"'
)

now = Row(
    "Now",
    [
        figure("Query nodes up", "short", "Query nodes that Prometheus reaches.", of.total("up", 'job="bireme-query"')),
        figure("I/O nodes up", "short", "I/O nodes that Prometheus reaches.", of.total("up", 'job="bireme-io"')),
        figure(
            "Requests a second",
            "reqps",
            "Requests to query nodes that were answered, well or not.",
            of.count(CALLS, RPC),
        ),
        figure("Search p99", "s", "What 99 of 100 searches stay under.", of.quantile(0.99, CALLS, SEARCH)),
        figure(
            "Failing",
            "percentunit",
            "The share of requests that fail through no fault of their callers.",
            f"{of.rate('bireme_query_failures_total', OWN)} / ({of.count(CALLS, RPC)})",
            decimals=2,
        ),
        figure(
            "Alerts",
            "short",
            "Alerts of Bireme that fire.",
            'count(ALERTS{alertname=~"Bireme.*", alertstate="firing", namespace=~"$namespace"}) or vector(0)',
        ),
        figure("Rows a second", "short", "Rows that I/O nodes served.", of.rate("bireme_io_rows_total")),
        figure(
            "Hit ratio",
            "percentunit",
            "The share of I/O nodes' rows that came from drives or RAM.",
            f"1 - {of.share('bireme_io_rows_from_table_total', 'bireme_io_rows_total')}",
            decimals=2,
            high=1,
        ),
        figure(
            "Batch p99",
            "s",
            "What 99 of 100 batches stay under, on I/O nodes.",
            of.quantile(0.99, "bireme_io_batch_duration_seconds", 'stage="all"'),
        ),
        figure("Reads a second", "iops", "Reads of all drives.", of.rate("bireme_io_drive_reads_total")),
        figure(
            "Cache", "bytes", "Bytes of extents and journals on all drives.", of.total("bireme_io_drive_usage_bytes")
        ),
        figure(
            "Store cost an hour",
            "currencyUSD",
            "What requests to object stores cost at the configured prices.",
            f"{of.rate('bireme_store_cost_total')} * 3600",
            decimals=4,
        ),
    ],
)
query = Row(
    "Query tier",
    [
        lines("Requests", "reqps", "Requests a second by rpc.", (of.count(CALLS, RPC, "rpc_method"), "{{rpc_method}}")),
        shared.calls_p99(of, "How long requests take", "p99 by rpc."),
        lines(
            "Searches",
            "s",
            "How long searches take.",
            *((of.quantile(q, CALLS, SEARCH), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99)),
        ),
        shared.failures(of, "Requests that ended in an error, by its reason."),
        lines(
            "Searches that wait",
            "short",
            "Searches, table reads and looks at placement that wait for their turn. At the bound more are refused.",
            (of.total("bireme_query_queue", by="instance"), "{{instance}}"),
            (f"min ({of('bireme_query_queue_limit')})", "bound"),
        ),
        lines(
            "Rows from the table, by query nodes",
            "short",
            "Rows a second that query nodes read from the table, as an I/O node could not bring them.",
            (of.rate("bireme_query_fallback_rows_total", by="instance"), "{{instance}}"),
        ),
    ],
)
io = Row(
    "I/O tier",
    [
        stacked(
            "Rows", "short", "Rows a second by node.", (of.rate("bireme_io_rows_total", by="instance"), "{{instance}}")
        ),
        lines(
            "How long batches take",
            "s",
            "p99 from arrival to reply, by node.",
            (of.quantile(0.99, "bireme_io_batch_duration_seconds", 'stage="all"', "instance"), "{{instance}}"),
        ),
        lines(
            "Hit ratio",
            "percentunit",
            "The share of rows that came from drives or RAM, by node.",
            (f"1 - {of.share('bireme_io_rows_from_table_total', 'bireme_io_rows_total', 'instance')}", "{{instance}}"),
            high=1,
        ),
        stacked(
            "Reads",
            "iops",
            "Reads of drives a second, by node.",
            (of.rate("bireme_io_drive_reads_total", by="instance"), "{{instance}}"),
        ),
        lines(
            "How long reads take",
            "s",
            "p99 from submission to completion, by node.",
            (of.quantile(0.99, "bireme_io_drive_read_duration_seconds", by="instance"), "{{instance}}"),
        ),
        lines(
            "Refused and dropped",
            "reqps",
            "Batches, streams and connections a second that were refused for load, and batches whose deadline had"
            " passed or caller had gone.",
            (of.rate("bireme_io_batches_shed_total", by="instance"), "{{instance}} refused"),
            (of.rate("bireme_io_batches_dropped_total", by="instance"), "{{instance}} dropped"),
        ),
    ],
)
nodes = Row(
    "Nodes",
    [
        shared.members(of, "I/O nodes, as query nodes see them", "The fewest that any query node has, by state."),
        lines(
            "CPU",
            "short",
            "Cores in use, by node.",
            (of.rate("process_cpu_time_seconds_total", 'job=~"bireme-.*"', "instance"), "{{instance}}"),
        ),
        lines(
            "Memory",
            "bytes",
            "Resident memory, by node.",
            (of.total("process_memory_usage_bytes", 'job=~"bireme-.*"', "instance"), "{{instance}}"),
        ),
        lines(
            "Certificates",
            "s",
            "For how long the certificates in use are good, the first to expire of each role. Below 0 it has expired.",
            (f"min by (role) ({of('bireme_tls_certificate_expiration_timestamp_seconds')}) - time()", "{{role}}"),
            low=None,
        ),
    ],
)

dashboard = Dashboard(
    "bireme-tiers",
    "Bireme: both tiers",
    "Whether Bireme is well: requests, rows, and what nodes are there.",
    [now, query, io, nodes],
    [of_label("namespace", "namespace", "target_info", everything=True)],
)
