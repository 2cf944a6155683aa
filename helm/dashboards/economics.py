"""What the cache costs and what it saves."""

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
SPENT, SAVED = of.rate("bireme_store_cost_total"), f"{CACHED} * $read_price / 1e6"
WHAT_SAVED = (
    "Rows that came from drives or RAM, at the price of a read of the store each. That is the least that they would"
    " have cost: a columnar file takes a read for each column of a row, and its bytes may cost as well."
)


def increase(counter: str, more: str = "") -> str:
    return f"sum (increase({of(counter, more)}[$__range]))"


now = Row(
    "In the time shown",
    [
        figure(
            "Spent",
            "currencyUSD",
            "What requests to object stores cost, by both tiers, at the configured prices.",
            increase("bireme_store_cost_total"),
            decimals=4,
        ),
        figure(
            "Saved",
            "currencyUSD",
            WHAT_SAVED,
            f"({increase('bireme_io_rows_total')} - {increase('bireme_io_rows_from_table_total')}) * $read_price / 1e6",
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
            "The share of I/O nodes' rows that came from drives or RAM.",
            f"1 - {increase('bireme_io_rows_from_table_total')} / {increase('bireme_io_rows_total')}",
            decimals=2,
            high=1,
        ),
        figure(
            "Store reads",
            "short",
            "Reads that both tiers asked stores for.",
            increase("bireme_store_requests_total", 'kind="read"'),
        ),
        figure(
            "Bytes from the store",
            "bytes",
            "Bytes of those reads.",
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
            "Of the rows of I/O nodes, those from drives or RAM; of the sectors looked for, those from RAM.",
            (f"1 - {of.share('bireme_io_rows_from_table_total', 'bireme_io_rows_total')}", "drives and RAM"),
            (RAM, "RAM tier"),
            high=1,
        ),
        stacked(
            "Where rows come from",
            "short",
            "Rows a second: from drives or RAM, from the table by I/O nodes (misses), from the table by query nodes (no"
            " I/O node could).",
            (CACHED, "cache"),
            (of.rate("bireme_io_rows_from_table_total"), "table, by I/O nodes"),
            (of.rate("bireme_query_fallback_rows_total"), "table, by query nodes"),
        ),
        lines(
            "How full",
            "percentunit",
            "Bytes of extents and journals, of the slabs, by node.",
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
            "Requests a second by tier and kind.",
            (of.rate("bireme_store_requests_total", by="job, kind"), "{{job}} {{kind}}"),
        ),
        lines(
            "Bytes",
            "Bps",
            "Bytes of objects a second, by tier and kind.",
            (of.rate("bireme_store_transferred_bytes_total", by="job, kind"), "{{job}} {{kind}}"),
        ),
        lines(
            "Cost an hour",
            "currencyUSD",
            "What requests cost at the configured prices, by tier.",
            (f"{of.rate('bireme_store_cost_total', by='job')} * 3600", "{{job}}"),
            decimals=4,
        ),
        lines(
            "Spent and saved an hour",
            "currencyUSD",
            WHAT_SAVED,
            (f"{SPENT} * 3600", "spent"),
            (f"{SAVED} * 3600", "saved"),
            decimals=4,
        ),
        lines(
            "Cost of a million rows",
            "currencyUSD",
            "What stores cost for a million rows that I/O nodes served.",
            (f"{SPENT} / {of.rate('bireme_io_rows_total')} * 1e6", "a million rows"),
            decimals=4,
        ),
        lines(
            "Failed, refused, hedged",
            "reqps",
            "Requests a second that failed, were not sent, or were asked twice as they were late.",
            (of.rate("bireme_store_failures_total"), "failed"),
            (of.rate("bireme_store_refused_total"), "refused"),
            (of.rate("bireme_store_hedged_total"), "hedged"),
        ),
    ],
)
writes = Row(
    "What the drives pay",
    [
        shared.drive_writes(
            of,
            "Bytes a second: extents filled, extents kept as their segment was reclaimed, all that drives were given.",
        ),
        lines(
            "Fills",
            "short",
            "Fills a second that ended, by outcome.",
            (of.rate("bireme_io_fills_total", by="outcome"), "{{outcome}}"),
        ),
        lines(
            "Evictions",
            "short",
            "Extents a second that were let go to make room. Many, with a low hit ratio: what is asked for doesn't"
            " fit.",
            (of.rate("bireme_io_extents_evicted_total", by="instance"), "{{instance}}"),
        ),
    ],
)

dashboard = Dashboard(
    "bireme-economics",
    "Bireme: cache economics",
    "How much of what is asked for the cache has, and what that costs and saves.",
    [now, hits, store, writes],
    [
        of_label("namespace", "namespace", "target_info", everything=True),
        written(
            "read_price",
            "Price of a million reads, $",
            "0.4",
            "As `store.prices` of the nodes has it (million_reads); 0.4 is S3 Standard's list price",
        ),
    ],
)
