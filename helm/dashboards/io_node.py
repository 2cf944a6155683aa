"""One I/O node: where its batches' time goes, its cores, drives and cache."""

from . import shared
from .dashboard import Dashboard, of_label
from .panel import Row, lines, stacked
from .query import Selection

of = Selection('namespace=~"$namespace", instance="$instance"')
BATCH = "bireme_io_batch_duration_seconds"
READ = "bireme_io_drive_read_duration_seconds"

batches = Row(
    "Batches",
    [
        lines(
            "Rows",
            "short",
            "Rows a second, and those of them that the table answered.",
            (of.rate("bireme_io_rows_total"), "rows"),
            (of.rate("bireme_io_rows_from_table_total"), "of them from the table"),
        ),
        lines(
            "Batches",
            "reqps",
            "Batches a second: served, refused for load, dropped as late or deserted.",
            (of.rate("bireme_io_batches_total"), "served"),
            (of.rate("bireme_io_batches_shed_total"), "refused"),
            (of.rate("bireme_io_batches_dropped_total"), "dropped"),
        ),
        lines(
            "Rows in a batch",
            "short",
            "How large batches are.",
            (of.quantile(0.5, "bireme_io_batch_rows"), "p50"),
            (of.quantile(0.99, "bireme_io_batch_rows"), "p99"),
        ),
        lines(
            "How long batches take",
            "s",
            "From arrival to reply.",
            *((of.quantile(q, BATCH, 'stage="all"'), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99)),
        ),
        lines(
            "Stages, p99",
            "s",
            "Of each stage by itself: `queue` until the first read is asked of a drive, `read` until the last row is"
            " there.",
            (of.quantile(0.99, BATCH, 'stage!="all"', "stage"), "{{stage}}"),
        ),
        stacked(
            "Stages, mean",
            "s",
            "What a batch's time is made of.",
            (of.mean(BATCH, 'stage!="all"', "stage"), "{{stage}}"),
        ),
        lines(
            "Streams and batches",
            "short",
            "Fetch streams that are open; batches under way.",
            (of.total("bireme_io_streams"), "streams"),
            (of.total("bireme_io_batches_under_way"), "batches"),
        ),
        lines(
            "Memory for clients",
            "bytes",
            "Connections, streams, batches, and replies until they are sent. At the bound batches are refused.",
            (of.total("bireme_io_traffic_memory_usage_bytes"), "held"),
            (of.total("bireme_io_traffic_memory_limit_bytes"), "bound"),
        ),
        lines(
            "Memory",
            "bytes",
            "Resident memory; the directory's part of it.",
            (of.total("process_memory_usage_bytes"), "resident"),
            (of.total("bireme_io_directory_usage_bytes"), "directory"),
        ),
    ],
)
cores = Row(
    "Cores",
    [
        lines(
            "Pieces that wait",
            "short",
            "Pieces of rows that wait for a read, by core.",
            (of.total("bireme_io_ring_queue", by="core"), "core {{core}}"),
        ),
        lines(
            "Operations in flight",
            "short",
            "Operations in flight, by ring.",
            (of.total("bireme_io_ring_in_flight", by="core"), "core {{core}}"),
        ),
        lines(
            "Reads a submit",
            "short",
            "Reads that the kernel was given at once: how well submissions are batched.",
            (of.share("bireme_io_ring_reads_total", "bireme_io_ring_submits_total", "core"), "core {{core}}"),
        ),
        stacked(
            "Reads",
            "iops",
            "Reads a second, by core: whether load is spread.",
            (of.rate("bireme_io_ring_reads_total", by="core"), "core {{core}}"),
        ),
        lines(
            "How long reads take",
            "s",
            "p99 by core.",
            (of.quantile(0.99, "bireme_io_ring_read_duration_seconds", by="core"), "core {{core}}"),
        ),
        lines(
            "CPU and retries",
            "short",
            "Cores in use; operations a second that were submitted once more.",
            (of.rate("process_cpu_time_seconds_total"), "CPU"),
            (of.rate("bireme_io_ring_retries_total"), "retries"),
        ),
    ],
)
drives = Row(
    "Drives",
    [
        stacked(
            "Reads",
            "iops",
            "Reads a second that ended well, by drive.",
            (of.rate("bireme_io_drive_reads_total", by="drive"), "{{drive}}"),
        ),
        stacked(
            "Bytes read",
            "Bps",
            "Bytes of those reads.",
            (of.rate("bireme_io_drive_read_bytes_total", by="drive"), "{{drive}}"),
        ),
        lines(
            "How long reads take",
            "s",
            "From submission to completion, by drive.",
            (of.quantile(0.5, READ, by="drive"), "{{drive}} p50"),
            (of.quantile(0.99, READ, by="drive"), "{{drive}} p99"),
        ),
        lines(
            "Reads in flight",
            "short",
            "Reads asked of a drive and not answered yet.",
            (of.total("bireme_io_drive_in_flight", by="drive"), "{{drive}}"),
        ),
        lines(
            "Rows a read",
            "short",
            "Rows from drives for each read of one: above 1 is what coalescing and RAM bring.",
            (
                (
                    f"({of.rate('bireme_io_rows_total')} - {of.rate('bireme_io_rows_from_table_total')}) /"
                    f" {of.rate('bireme_io_drive_reads_total')}"
                ),
                "rows a read",
            ),
        ),
        lines(
            "Pieces that came along",
            "short",
            "Pieces of rows a second that another piece's read brought: merged with sectors of their own, deduplicated"
            " where all were read for others already.",
            (of.rate("bireme_io_coalesced_total", by="how"), "{{how}}"),
        ),
        lines(
            "How full",
            "percentunit",
            "Bytes of extents and journals, of a drive's slab.",
            (
                (
                    f"{of.total('bireme_io_drive_usage_bytes', by='drive')} /"
                    f" {of.total('bireme_io_drive_capacity_bytes', by='drive')}"
                ),
                "{{drive}}",
            ),
            high=1,
        ),
        lines(
            "State",
            "short",
            "1 for the state that a drive is in.",
            (of.total("bireme_io_drive_state", by="drive, state"), "{{drive}} {{state}}"),
            high=1,
        ),
        lines(
            "Faults",
            "short",
            "A second: reads that failed, bad sectors, reads given up as late, extents dropped for one of these.",
            (of.rate("bireme_io_drive_failures_total", by="drive"), "{{drive}} failed"),
            (of.rate("bireme_io_sectors_bad_total"), "bad sectors"),
            (of.rate("bireme_io_reads_late_total"), "late"),
            (of.rate("bireme_io_extents_dropped_total"), "extents dropped"),
        ),
    ],
)
cache = Row(
    "Cache and fills",
    [
        lines(
            "Fills",
            "short",
            "Fills a second that ended, by outcome; those that wait or are under way.",
            (of.rate("bireme_io_fills_total", by="outcome"), "{{outcome}}"),
            (of.total("bireme_io_fills_under_way"), "under way"),
        ),
        shared.drive_writes(
            of,
            "Bytes of extents filled; those written once more as they are worth keeping; all that drives were given.",
        ),
        lines("Extents", "short", "Extents on the drives.", (of.total("bireme_io_extents"), "extents")),
        lines(
            "Extents: hits",
            "percentunit",
            "Of the rows that batches ask for, those that a drive had when they were located.",
            (
                (
                    f"{of.rate('bireme_io_extents_hits_total')} / ({of.rate('bireme_io_extents_hits_total')} +"
                    f" {of.rate('bireme_io_extents_misses_total')})"
                ),
                "hits",
            ),
            high=1,
        ),
        stacked(
            "Extents: heat",
            "short",
            "Extents by how many batches of a core have read them, the mean of its cores: what is kept when a segment"
            " is reclaimed goes by it.",
            (f"avg by (heat) ({of('bireme_io_extents_heat')})", "{{heat}}"),
        ),
        lines(
            "Evicted and scrubbed",
            "short",
            "Extents a second: let go to make room, looked at by the scrubber.",
            (of.rate("bireme_io_extents_evicted_total"), "evicted"),
            (of.rate("bireme_io_extents_scrubbed_total"), "scrubbed"),
        ),
        lines(
            "RAM tier: hits",
            "percentunit",
            "Of the sectors looked for, those that the RAM tier had.",
            (
                (
                    f"{of.rate('bireme_io_ram_hits_total')} / ({of.rate('bireme_io_ram_hits_total')} +"
                    f" {of.rate('bireme_io_ram_misses_total')})"
                ),
                "hits",
            ),
            high=1,
        ),
        lines(
            "RAM tier: size",
            "bytes",
            "Bytes of sectors in it, and its bound.",
            (of.total("bireme_io_ram_usage_bytes"), "used"),
            (of.total("bireme_io_ram_limit_bytes"), "bound"),
        ),
        lines(
            "RAM tier: admitted",
            "short",
            "Sectors a second that were let in.",
            (of.rate("bireme_io_ram_admitted_total"), "sectors"),
        ),
        shared.store(of),
        lines(
            "Engine",
            "short",
            "What carries reads out; all but io_uring is slower.",
            (of.total("bireme_io_engine", by="engine"), "{{engine}}"),
            high=1,
        ),
    ],
)

dashboard = Dashboard(
    "bireme-io-node",
    "Bireme: one I/O node",
    "Where the time of a node's batches goes, and how its drives and cache are.",
    [batches, cores, drives, cache],
    [
        of_label("namespace", "namespace", "bireme_io_rows_total", everything=True),
        of_label("instance", "instance", 'bireme_io_rows_total{namespace=~"$namespace"}', everything=False),
    ],
)
