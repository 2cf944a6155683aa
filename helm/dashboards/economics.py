"""The dashboard of what the cache costs and saves."""

from . import shared
from .dashboard import Dashboard, of_label, written
from .panel import Row, figure, lines, stacked
from .query import Selection

of = Selection('namespace=~"$namespace"')
CACHED = f"({of.rate('bireme_io_rows_total')} - {of.rate('bireme_io_rows_from_table_total')})"
RAM = (
    f"{of.rate('bireme_io_ram_hits_total')} / ({of.rate('bireme_io_ram_hits_total')} +"
    f" {of.rate('bireme_io_ram_misses_total')})"
)
SPENT, SAVED = of.rate("bireme_store_cost_total"), f"({CACHED} * $read_price / 1e6 + {of.rate('bireme_store_saved_total')})"
WHAT_SAVED = (
    "Rows from drives or RAM, each at the price of one read from the store, and reads of index files that I/O nodes"
    " answered. This is a lower bound: a columnar file takes one read per column of a row, and the bytes may cost as"
    " well."
)


def increase(counter: str, more: str = "") -> str:
    return f"sum (increase({of(counter, more)}[$__range]))"


now = Row(
    "In the selected time",
    [
        figure(
            "Spent",
            "currencyUSD",
            "Cost of both tiers' requests to object stores, at the list prices of S3.",
            increase("bireme_store_cost_total"),
            decimals=4,
        ),
        figure(
            "Saved",
            "currencyUSD",
            WHAT_SAVED,
            f"({increase('bireme_io_rows_total')} - {increase('bireme_io_rows_from_table_total')}) * $read_price / 1e6"
            f" + {increase('bireme_store_saved_total')}",
            decimals=4,
        ),
        figure(
            "Rows from the cache",
            "short",
            "Rows that came from drives or RAM.",
            f"{increase('bireme_io_rows_total')} - {increase('bireme_io_rows_from_table_total')}",
        ),
        figure(
            "Hit ratio",
            "percentunit",
            "Share of I/O nodes' rows that came from drives or RAM.",
            f"1 - {increase('bireme_io_rows_from_table_total')} / {increase('bireme_io_rows_total')}",
            decimals=2,
            high=1,
        ),
        figure(
            "Store reads",
            "short",
            "Read requests of both tiers to object stores.",
            increase("bireme_store_requests_total", 'kind="read"'),
        ),
        figure(
            "Bytes from the store",
            "bytes",
            "Bytes of these reads.",
            increase("bireme_store_transferred_bytes_total", 'kind="read"'),
        ),
    ],
)
hits = Row(
    "Hits",
    [
        lines(
            "Hit ratio",
            "percentunit",
            "Share of I/O nodes' rows that came from drives or RAM; share of requested sectors that were in RAM.",
            (f"1 - {of.share('bireme_io_rows_from_table_total', 'bireme_io_rows_total')}", "drives and RAM"),
            (RAM, "RAM tier"),
            high=1,
        ),
        stacked(
            "Where rows come from",
            "short",
            "Rows per second: from drives or RAM, from the table by I/O nodes (misses), from the table by query nodes"
            " (because no I/O node returned them).",
            (CACHED, "cache"),
            (of.rate("bireme_io_rows_from_table_total"), "table, by I/O nodes"),
            (of.rate("bireme_query_fallback_rows_total"), "table, by query nodes"),
        ),
        lines(
            "Drive usage",
            "percentunit",
            "Share of the slabs that holds extents and journals, by node.",
            (
                (
                    f"{of.total('bireme_io_drive_usage_bytes', by='instance')} /"
                    f" {of.total('bireme_io_drive_capacity_bytes', by='instance')}"
                ),
                "{{instance}}",
            ),
            high=1,
        ),
    ],
)
store = Row(
    "Object store",
    [
        lines(
            "Requests",
            "reqps",
            "Requests per second, by tier and kind.",
            (of.rate("bireme_store_requests_total", by="job, kind"), "{{job}} {{kind}}"),
        ),
        lines(
            "Bytes",
            "Bps",
            "Bytes of objects per second, by tier and kind.",
            (of.rate("bireme_store_transferred_bytes_total", by="job, kind"), "{{job}} {{kind}}"),
        ),
        lines(
            "Cost per hour",
            "currencyUSD",
            "Cost of requests at the list prices of S3, by tier.",
            (f"{of.rate('bireme_store_cost_total', by='job')} * 3600", "{{job}}"),
            decimals=4,
        ),
        lines(
            "Spent and saved per hour",
            "currencyUSD",
            WHAT_SAVED,
            (f"{SPENT} * 3600", "spent"),
            (f"{SAVED} * 3600", "saved"),
            decimals=4,
        ),
        lines(
            "New versions",
            "short",
            "Per second, by tier: versions of tables that were opened, and the reads of their manifests, transactions"
            " and deletions from the store. The first version of a table that a node reads costs a read of each deletion"
            " file; a later one costs as many reads as there are changes, while the metadata cache holds the other"
            " deletions.",
            (of.rate("bireme_store_versions_total", by="job"), "{{job}} versions"),
            (of.rate("bireme_store_version_reads_total", by="job"), "{{job}} reads"),
        ),
        lines(
            "Cost per million rows",
            "currencyUSD",
            "Store cost per million rows that I/O nodes served.",
            (f"{SPENT} / {of.rate('bireme_io_rows_total')} * 1e6", "per million rows"),
            decimals=4,
        ),
        lines(
            "Failed, refused, hedged",
            "reqps",
            "Requests per second that failed, were refused before they were sent, or were sent twice because of delay.",
            (of.rate("bireme_store_failures_total"), "failed"),
            (of.rate("bireme_store_refused_total"), "refused"),
            (of.rate("bireme_store_hedged_total"), "hedged"),
        ),
    ],
)
writes = Row(
    "Writes and evictions",
    [
        shared.drive_writes(
            of,
            "Bytes per second: extents filled, extents kept when their segment was reclaimed, all writes to drives.",
        ),
        lines(
            "Fills",
            "short",
            "Finished fills per second, by outcome.",
            (of.rate("bireme_io_fills_total", by="outcome"), "{{outcome}}"),
        ),
        lines(
            "Evictions",
            "short",
            "Extents per second that were evicted to make space. Many evictions and a low hit ratio mean that the"
            " requested rows do not fit.",
            (of.rate("bireme_io_extents_evicted_total", by="instance"), "{{instance}}"),
        ),
    ],
)

dashboard = Dashboard(
    "bireme-economics",
    "Bireme: cache economics",
    "The cache's hit ratio, and what the cache costs and saves.",
    [now, hits, store, writes],
    [
        of_label("namespace", "namespace", "target_info", everything=True),
        written(
            "read_price",
            "Price per million reads, $",
            "0.4",
            "0.4 is S3 Standard's list price",
        ),
    ],
)
