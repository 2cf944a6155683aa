"""The dashboard of both tiers at a glance."""

from . import shared
from .dashboard import Dashboard, of_label
from .panel import Row, figure, lines, stacked
from .query import Selection
from .shared import CALLS, RPC

of = Selection('namespace=~"$namespace"')
SEARCH = 'rpc_method=~"bireme.query.v1.QueryService/Search|http/query"'
# Errors that the request itself does not cause.
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
            "Requests per second",
            "reqps",
            "Requests that query nodes answered, with or without an error.",
            of.count(CALLS, RPC),
        ),
        figure(
            "Search p99",
            "s",
            "99 % of searches, and of queries over plain HTTP, are faster than this.",
            of.quantile(0.99, CALLS, SEARCH),
        ),
        figure(
            "Failing",
            "percentunit",
            "Share of requests that fail, and not because of the request.",
            f"{of.rate('bireme_query_failures_total', OWN)} / ({of.count(CALLS, RPC)})",
            decimals=2,
        ),
        figure(
            "Alerts",
            "short",
            "Number of Bireme's alerts that are firing.",
            'count(ALERTS{alertname=~"Bireme.*", alertstate="firing", namespace=~"$namespace"}) or vector(0)',
        ),
        figure("Rows per second", "short", "Rows that I/O nodes served.", of.rate("bireme_io_rows_total")),
        figure(
            "Hit ratio",
            "percentunit",
            "Share of I/O nodes' rows that came from drives or RAM.",
            f"1 - {of.share('bireme_io_rows_from_table_total', 'bireme_io_rows_total')}",
            decimals=2,
            high=1,
        ),
        figure(
            "Batch p99",
            "s",
            "99 % of batches on I/O nodes are faster than this.",
            of.quantile(0.99, "bireme_io_batch_duration_seconds", 'stage="all"'),
        ),
        figure("Reads per second", "iops", "Reads of all drives.", of.rate("bireme_io_drive_reads_total")),
        figure(
            "Cache", "bytes", "Bytes of extents and journals on all drives.", of.total("bireme_io_drive_usage_bytes")
        ),
        figure(
            "Store cost per hour",
            "currencyUSD",
            "Cost of requests to object stores, at the list prices of S3.",
            f"{of.rate('bireme_store_cost_total')} * 3600",
            decimals=4,
        ),
    ],
)
query = Row(
    "Query tier",
    [
        lines(
            "Requests", "reqps", "Requests per second, by RPC.", (of.count(CALLS, RPC, "rpc_method"), "{{rpc_method}}")
        ),
        shared.calls_p99(of, "Request duration", "p99, by RPC."),
        lines(
            "Searches",
            "s",
            "Duration of searches, and of queries over plain HTTP.",
            *((of.quantile(q, CALLS, SEARCH), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99)),
        ),
        shared.failures(of, "Requests per second that ended in an error, by reason."),
        lines(
            "Admission queue",
            "short",
            "Searches, table reads and Placement calls in the admission queue. At the limit, more are refused.",
            (of.total("bireme_query_queue", by="instance"), "{{instance}}"),
            (f"min ({of('bireme_query_queue_limit')})", "limit"),
        ),
        lines(
            "Rows from the table, by query nodes",
            "short",
            "Rows per second that query nodes read from the table, because an I/O node did not return them.",
            (of.rate("bireme_query_fallback_rows_total", by="instance"), "{{instance}}"),
        ),
    ],
)
io = Row(
    "I/O tier",
    [
        stacked(
            "Rows",
            "short",
            "Rows per second, by node.",
            (of.rate("bireme_io_rows_total", by="instance"), "{{instance}}"),
        ),
        lines(
            "Batch duration",
            "s",
            "p99 from arrival to reply, by node.",
            (of.quantile(0.99, "bireme_io_batch_duration_seconds", 'stage="all"', "instance"), "{{instance}}"),
        ),
        lines(
            "Hit ratio",
            "percentunit",
            "Share of rows that came from drives or RAM, by node.",
            (f"1 - {of.share('bireme_io_rows_from_table_total', 'bireme_io_rows_total', 'instance')}", "{{instance}}"),
            high=1,
        ),
        stacked(
            "Reads",
            "iops",
            "Reads of drives per second, by node.",
            (of.rate("bireme_io_drive_reads_total", by="instance"), "{{instance}}"),
        ),
        lines(
            "Read duration",
            "s",
            "p99 from submission to completion, by node.",
            (of.quantile(0.99, "bireme_io_drive_read_duration_seconds", by="instance"), "{{instance}}"),
        ),
        lines(
            "Refused and dropped",
            "reqps",
            "Batches, streams and connections per second that were refused because of load, and batches that were"
            " dropped because their deadline had passed or their caller had gone.",
            (of.rate("bireme_io_batches_shed_total", by="instance"), "{{instance}} refused"),
            (of.rate("bireme_io_batches_dropped_total", by="instance"), "{{instance}} dropped"),
        ),
    ],
)
nodes = Row(
    "Nodes",
    [
        shared.members(of, "I/O nodes, as query nodes see them", "The lowest number on any query node, by state."),
        lines(
            "CPU",
            "short",
            "CPU cores in use, by node.",
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
            "Time until the certificates in use expire, for the first one of each role. Below 0, it has expired.",
            (f"min by (role) ({of('bireme_tls_certificate_expiration_timestamp_seconds')}) - time()", "{{role}}"),
            low=None,
        ),
    ],
)

dashboard = Dashboard(
    "bireme-tiers",
    "Bireme: both tiers",
    "The health of both tiers: requests, rows and nodes.",
    [now, query, io, nodes],
    [of_label("namespace", "namespace", "target_info", everything=True)],
)
