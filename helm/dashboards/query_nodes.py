"""The dashboard of query nodes, one or several: stages, searches, and their view of the I/O tier."""

from . import shared
from .dashboard import Dashboard, of_label
from .panel import Row, lines, stacked
from .query import Selection
from .shared import CALLS, RPC

of = Selection('namespace=~"$namespace", instance=~"$instance"')
STAGE = "bireme_query_stage_duration_seconds"
FILTER = 'cache="filter"'

requests = Row(
    "Requests",
    [
        stacked(
            "Requests", "reqps", "Requests per second, by RPC.", (of.count(CALLS, RPC, "rpc_method"), "{{rpc_method}}")
        ),
        lines(
            "Request duration, p50", "s", "By RPC.", (of.quantile(0.5, CALLS, RPC, "rpc_method"), "{{rpc_method}}")
        ),
        shared.calls_p99(of, "Request duration, p99", "By RPC."),
        stacked(
            "Answers",
            "reqps",
            "Requests per second, by gRPC code.",
            (of.count(CALLS, RPC, "rpc_response_status_code"), "{{rpc_response_status_code}}"),
        ),
        shared.failures(of, "Requests per second that ended in an error, by reason."),
        lines(
            "Refused for lack of memory",
            "reqps",
            "Requests, messages of streams and replies per second that were refused because the memory for callers was"
            " full.",
            (of.rate("bireme_query_requests_shed_total", by="instance"), "{{instance}}"),
        ),
        lines(
            "Requests under way",
            "short",
            "Searches, Gets and Lookups that are not answered yet. The tier can be scaled by this number.",
            (of.total("bireme_query_requests_under_way", by="instance"), "{{instance}}"),
        ),
        lines(
            "Admission queue",
            "short",
            "Searches, table reads and Placement calls in the admission queue. At the limit, more are refused.",
            (of.total("bireme_query_queue", by="instance"), "{{instance}}"),
            (of.total("bireme_query_queue_limit", by="instance"), "{{instance}} limit"),
        ),
    ],
)
stages = Row(
    "Stages",
    [
        stacked(
            "Where time goes",
            "s",
            "Seconds per second that requests spend in each stage, which is the number of requests in it at a time.",
            (of.sum(STAGE, by="stage"), "{{stage}}"),
            width=12,
        ),
        lines(
            "Stages, p99",
            "s",
            "By stage.",
            (of.quantile(0.99, STAGE, by="stage"), "{{stage}}"),
            width=12,
        ),
        lines("Stages, mean", "s", "By stage.", (of.mean(STAGE, by="stage"), "{{stage}}"), width=12),
        lines(
            "Stages, p50", "s", "By stage.", (of.quantile(0.5, STAGE, by="stage"), "{{stage}}"), width=12
        ),
    ],
)
searches = Row(
    "Searches",
    [
        stacked(
            "Searches",
            "reqps",
            "Searches per second, by vector, text or filter, by kind of index, and by whether indexes were searched"
            " directly or by Lance's scanner, or none: the few rows that pass a filter were scored, or a vector was"
            " compared with every row (exhaustive).",
            (of.rate("bireme_query_searches_total", by="by, via, index"), "{{by}}, {{via}}, {{index}}"),
        ),
        lines(
            "Candidates",
            "short",
            "Rows that the index returned for a search.",
            (of.quantile(0.5, "bireme_query_search_candidates"), "p50"),
            (of.quantile(0.99, "bireme_query_search_candidates"), "p99"),
        ),
        lines(
            "Partitions",
            "short",
            "Index partitions that a vector search was asked to probe.",
            (of.quantile(0.5, "bireme_query_search_nprobes"), "p50"),
            (of.quantile(0.99, "bireme_query_search_nprobes"), "p99"),
        ),
        stacked(
            "Rows compared one by one",
            "short",
            "Rows per second: fresh ones, which the vector index does not cover, and candidates for which I/O nodes"
            " evaluated a filter, because the rows that pass it are not known.",
            (of.rate("bireme_query_search_fresh_rows_total"), "fresh"),
            (of.rate("bireme_query_search_filtered_rows_total"), "filtered"),
        ),
        lines(
            "Unindexed rows",
            "short",
            "Rows that an index does not cover, by table and index. Each search by vector compares those of its index"
            " one by one.",
            (f"max by (table, index) ({of('bireme_query_table_unindexed_rows')})", "{{table}}, {{index}}"),
        ),
        lines(
            "Filter cache",
            "short",
            "Filters per second whose rows were cached, and whose rows had to be found, by indexes or by a scan.",
            (of.rate("bireme_lake_cache_hits_total", FILTER), "hits"),
            (of.rate("bireme_lake_cache_misses_total", FILTER), "misses"),
        ),
        lines(
            "Filter cache, memory",
            "bytes",
            "Memory of the lists of rows that pass filters, and its limit, by node.",
            (of.total("bireme_lake_cache_usage_bytes", FILTER, by="instance"), "{{instance}}"),
            (of.total("bireme_lake_cache_limit_bytes", FILTER, by="instance"), "{{instance}} limit"),
        ),
    ],
)
tier = Row(
    "The I/O tier, as query nodes see it",
    [
        lines(
            "Fetch duration",
            "s",
            "Time from sending an I/O node its slice of a request to its answer.",
            *((of.quantile(q, "bireme_query_fetch_duration_seconds"), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99)),
        ),
        lines(
            "Rows per fetch",
            "short",
            "Rows in one I/O node's slice of a request.",
            (of.quantile(0.5, "bireme_query_fetch_rows"), "p50"),
            (of.quantile(0.99, "bireme_query_fetch_rows"), "p99"),
        ),
        stacked(
            "Rows",
            "short",
            "Rows per second: returned by I/O nodes, and read from the table because no node returned them.",
            (of.sum("bireme_query_fetch_rows"), "I/O nodes"),
            (of.rate("bireme_query_fallback_rows_total"), "table"),
        ),
        shared.members(of, "Nodes", "The lowest number that any query node sees, by state."),
        lines(
            "Rows outstanding",
            "short",
            "Rows that were requested from a node and are not answered yet.",
            (of.total("bireme_query_io_node_outstanding", by="io_node"), "{{io_node}}"),
        ),
        lines(
            "Batches waiting",
            "short",
            "Batches that are not sent yet, because they wait for a node's credit or for space on the"
            " connection.",
            (of.total("bireme_query_io_node_waiting", by="io_node"), "{{io_node}}"),
        ),
        lines(
            "Credit in use",
            "percentunit",
            "Outstanding rows, as a share of the node's credit. At 1, batches wait.",
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
            "Batches per second that had to wait for a node's credit, and the number that wait at a time.",
            (of.rate("bireme_query_io_node_credit_waits_total", by="io_node"), "{{io_node}}"),
            (
                of.rate("bireme_query_io_node_credit_wait_time_seconds_total", by="io_node"),
                "{{io_node}} at a time",
            ),
        ),
        lines(
            "Streams",
            "short",
            "Connected streams to a node.",
            (of.total("bireme_query_io_node_streams", by="io_node"), "{{io_node}}"),
        ),
        lines(
            "Generation of the member list",
            "short",
            "Number of lists that a query node has adopted. All query nodes should see the same changes.",
            (of.total("bireme_query_membership_generation", by="instance"), "{{instance}}"),
        ),
        lines(
            "Membership errors",
            "short",
            "Per second: failed reads of the list's source, refused lists, ejected nodes.",
            (of.rate("bireme_query_membership_failures_total"), "source failed"),
            (of.rate("bireme_query_membership_refused_total"), "refused"),
            (of.rate("bireme_query_membership_ejections_total"), "ejected"),
        ),
    ],
)
keys = Row(
    "Key indexes",
    [
        stacked(
            "Keys looked up",
            "short",
            "Keys per second that were looked up: via the key index alone, or via the table.",
            (of.rate("bireme_query_keys_total", by="via"), "{{via}}"),
        ),
        lines(
            "Memory",
            "bytes",
            "Memory of the key indexes of all tables, and its limit, by node. If a run does not fit, only its head is in"
            " memory.",
            (of.total("bireme_query_key_index_usage_bytes", by="instance"), "{{instance}}"),
            (of.total("bireme_query_key_index_limit_bytes", by="instance"), "{{instance}} limit"),
        ),
        lines(
            "Pages not in memory",
            "bytes",
            "Bytes of the pages of runs whose head alone is in memory, by table, on the node that has the most.",
            (f"max by (table) ({of('bireme_query_table_key_index_paged_bytes')})", "{{table}}"),
        ),
        lines(
            "Pages read",
            "short",
            "Pages per second that look-ups needed of these runs, by outcome. Keys whose page is damaged, or could not be"
            " read, are looked up in the table.",
            (of.rate("bireme_query_key_index_pages_total", by="outcome"), "{{outcome}}"),
        ),
        lines(
            "Runs",
            "short",
            "Runs per second that were loaded from a file, built from the column, merged, or opened as a head whose pages"
            " are read on demand; and files that were refused.",
            (of.rate("bireme_query_key_index_runs_total", by="source"), "{{source}}"),
            (of.rate("bireme_query_key_index_refused_total"), "refused"),
        ),
    ],
)
nodes = Row(
    "Tables and nodes",
    [
        lines(
            "Versions served",
            "short",
            "By table; 0 means that it cannot be opened. A node with a lower version than others lags behind.",
            (f"max by (instance, table) ({of('bireme_query_table_version')})", "{{table}} on {{instance}}"),
        ),
        lines(
            "Rows per table", "short", "By table.", (f"max by (table) ({of('bireme_query_table_rows')})", "{{table}}")
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
            "CPU cores in use, by node.",
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
    "Where the time of requests goes on query nodes, and their view of the I/O tier.",
    [requests, stages, searches, keys, tier, nodes],
    [
        of_label("namespace", "namespace", "bireme_query_queue", everything=True),
        of_label("instance", "instance", 'bireme_query_queue{namespace=~"$namespace"}', everything=True),
    ],
)
