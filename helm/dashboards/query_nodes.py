"""Query nodes, one or several: stages, searches, and what they see of the I/O tier."""

from . import shared
from .dashboard import Dashboard, of_label
from .panel import Row, lines, stacked
from .query import Selection
from .shared import CALLS, RPC

of = Selection('namespace=~"$namespace", instance=~"$instance"')
STAGE = "bireme_query_stage_duration_seconds"

requests = Row(
    "Requests",
    [
        stacked(
            "Requests", "reqps", "Requests a second by rpc.", (of.count(CALLS, RPC, "rpc_method"), "{{rpc_method}}")
        ),
        lines(
            "How long they take, p50", "s", "By rpc.", (of.quantile(0.5, CALLS, RPC, "rpc_method"), "{{rpc_method}}")
        ),
        shared.calls_p99(of, "How long they take, p99", "By rpc."),
        stacked(
            "Answers",
            "reqps",
            "Requests a second by gRPC code.",
            (of.count(CALLS, RPC, "rpc_response_status_code"), "{{rpc_response_status_code}}"),
        ),
        shared.failures(of, "Requests a second that ended in an error, by its reason."),
        lines(
            "Requests under way",
            "short",
            "Searches and Gets that have come and are not answered: the tier can be scaled by it.",
            (of.total("bireme_query_requests_under_way", by="instance"), "{{instance}}"),
        ),
        lines(
            "Searches that wait",
            "short",
            "Searches, table reads and looks at placement that wait for their turn. At the bound more are refused.",
            (of.total("bireme_query_queue", by="instance"), "{{instance}}"),
            (of.total("bireme_query_queue_limit", by="instance"), "{{instance}} bound"),
        ),
    ],
)
stages = Row(
    "Stages",
    [
        stacked(
            "Where time goes",
            "s",
            "Seconds that requests spend in each stage, in a second: how many requests are in it at a time.",
            (of.sum(STAGE, by="stage"), "{{stage}}"),
            width=12,
        ),
        lines(
            "Stages, p99",
            "s",
            "Of each stage by itself.",
            (of.quantile(0.99, STAGE, by="stage"), "{{stage}}"),
            width=12,
        ),
        lines("Stages, mean", "s", "Of each stage by itself.", (of.mean(STAGE, by="stage"), "{{stage}}"), width=12),
        lines(
            "Stages, p50", "s", "Of each stage by itself.", (of.quantile(0.5, STAGE, by="stage"), "{{stage}}"), width=12
        ),
    ],
)
searches = Row(
    "Searches",
    [
        stacked(
            "Searches",
            "reqps",
            "Searches a second: by what, by which kind of index, and whether its partitions were searched directly or"
            " by Lance's scanner.",
            (of.rate("bireme_query_searches_total", by="by, via, index"), "{{by}}, {{via}}, {{index}}"),
        ),
        lines(
            "Candidates",
            "short",
            "Rows that a search's index named.",
            (of.quantile(0.5, "bireme_query_search_candidates"), "p50"),
            (of.quantile(0.99, "bireme_query_search_candidates"), "p99"),
        ),
        lines(
            "Partitions",
            "short",
            "Index partitions that a vector search was to look into.",
            (of.quantile(0.5, "bireme_query_search_nprobes"), "p50"),
            (of.quantile(0.99, "bireme_query_search_nprobes"), "p99"),
        ),
    ],
)
tier = Row(
    "The I/O tier, as it is seen from here",
    [
        lines(
            "How long I/O nodes take",
            "s",
            "From asking a node for a request's share of rows to its answer.",
            *((of.quantile(q, "bireme_query_fetch_duration_seconds"), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99)),
        ),
        lines(
            "Rows asked for at once",
            "short",
            "Rows of such a share.",
            (of.quantile(0.5, "bireme_query_fetch_rows"), "p50"),
            (of.quantile(0.99, "bireme_query_fetch_rows"), "p99"),
        ),
        stacked(
            "Rows",
            "short",
            "Rows a second: asked of I/O nodes and brought, and read from the table as no node could.",
            (of.sum("bireme_query_fetch_rows"), "I/O nodes"),
            (of.rate("bireme_query_fallback_rows_total"), "table"),
        ),
        shared.members(of, "Nodes", "The fewest that any of the query nodes has, by state."),
        lines(
            "Rows outstanding",
            "short",
            "Rows asked of a node and not answered yet.",
            (of.total("bireme_query_io_node_outstanding", by="io_node"), "{{io_node}}"),
        ),
        lines(
            "Batches that wait",
            "short",
            "Batches that are not sent yet: they wait for a node's credit, as it is behind, or for room on the"
            " connection.",
            (of.total("bireme_query_io_node_waiting", by="io_node"), "{{io_node}}"),
        ),
        lines(
            "Credit in use",
            "percentunit",
            "Rows outstanding, of those that a node lets be. At 1 batches wait.",
            (
                (
                    f"{of.total('bireme_query_io_node_outstanding', by='io_node')} /"
                    f" {of.total('bireme_query_io_node_credit_limit', by='io_node')}"
                ),
                "{{io_node}}",
            ),
            high=1,
        ),
        lines(
            "Waits for credit",
            "short",
            "Batches a second that had to wait for a node's credit; how many wait at a time.",
            (of.rate("bireme_query_io_node_credit_waits_total", by="io_node"), "{{io_node}}"),
            (
                of.rate("bireme_query_io_node_credit_wait_time_seconds_total", by="io_node"),
                "{{io_node}} at a time",
            ),
        ),
        lines(
            "Streams",
            "short",
            "Streams to a node that are connected.",
            (of.total("bireme_query_io_node_streams", by="io_node"), "{{io_node}}"),
        ),
        lines(
            "The list of members",
            "short",
            "Lists that were taken, by query node: all are to see the same changes.",
            (of.total("bireme_query_membership_generation", by="instance"), "{{instance}}"),
        ),
        lines(
            "Its troubles",
            "short",
            "A second: times that its source could not be read, lists that were refused, nodes that were ejected.",
            (of.rate("bireme_query_membership_failures_total"), "source failed"),
            (of.rate("bireme_query_membership_refused_total"), "refused"),
            (of.rate("bireme_query_membership_ejections_total"), "ejected"),
        ),
    ],
)
nodes = Row(
    "Tables and nodes",
    [
        lines(
            "Versions served",
            "short",
            "By table; 0 is one that can't be opened. Query nodes that differ have not all seen the latest.",
            (f"max by (instance, table) ({of('bireme_query_table_version')})", "{{table}} on {{instance}}"),
        ),
        lines(
            "Rows of tables", "short", "By table.", (f"max by (table) ({of('bireme_query_table_rows')})", "{{table}}")
        ),
        shared.store(of),
        lines(
            "Store requests under way",
            "short",
            "By node.",
            (of.total("bireme_store_under_way", by="instance"), "{{instance}}"),
        ),
        lines(
            "CPU",
            "short",
            "Cores in use, by node.",
            (of.rate("process_cpu_time_seconds_total", by="instance"), "{{instance}}"),
        ),
        lines(
            "Memory",
            "bytes",
            "Resident memory, by node.",
            (of.total("process_memory_usage_bytes", by="instance"), "{{instance}}"),
        ),
    ],
)

dashboard = Dashboard(
    "bireme-query-nodes",
    "Bireme: query nodes",
    "Where requests' time goes on query nodes, and what they see of the I/O tier.",
    [requests, stages, searches, tier, nodes],
    [
        of_label("namespace", "namespace", "bireme_query_queue", everything=True),
        of_label("instance", "instance", 'bireme_query_queue{namespace=~"$namespace"}', everything=True),
    ],
)
