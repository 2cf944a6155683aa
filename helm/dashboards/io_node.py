"""The dashboard of one I/O node: where its batches' time goes, its cores, drives and cache."""

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
            "Rows per second, and how many of them came from the table.",
            (of.rate("bireme_io_rows_total"), "rows"),
            (of.rate("bireme_io_rows_from_table_total"), "from the table"),
        ),
        lines(
            "Batches",
            "reqps",
            "Batches per second: served, refused because of load, dropped as late or because the caller had gone.",
            (of.rate("bireme_io_batches_total"), "served"),
            (of.rate("bireme_io_batches_shed_total"), "refused"),
            (of.rate("bireme_io_batches_dropped_total"), "dropped"),
        ),
        lines(
            "Rows per batch",
            "short",
            "Number of rows in a batch.",
            (of.quantile(0.5, "bireme_io_batch_rows"), "p50"),
            (of.quantile(0.99, "bireme_io_batch_rows"), "p99"),
        ),
        lines(
            "Batch duration",
            "s",
            "From arrival to reply.",
            *((of.quantile(q, BATCH, 'stage="all"'), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99)),
        ),
        lines(
            "Stages, p99",
            "s",
            "p99 of each stage: `queue` lasts until the first read is sent to a drive, `read` until the last row has"
            " arrived.",
            (of.quantile(0.99, BATCH, 'stage!="all"', "stage"), "{{stage}}"),
        ),
        stacked(
            "Stages, mean",
            "s",
            "Mean time of a batch in each stage.",
            (of.mean(BATCH, 'stage!="all"', "stage"), "{{stage}}"),
        ),
        lines(
            "Streams and batches",
            "short",
            "Open Fetch streams; batches under way.",
            (of.total("bireme_io_streams"), "streams"),
            (of.total("bireme_io_batches_under_way"), "batches"),
        ),
        lines(
            "Memory for clients",
            "bytes",
            "Memory of connections, streams, batches and unsent replies. At the limit, batches are refused.",
            (of.total("bireme_io_traffic_memory_usage_bytes"), "held"),
            (of.total("bireme_io_traffic_memory_limit_bytes"), "limit"),
        ),
        lines(
            "Memory",
            "bytes",
            "Resident memory of the process, and the most that the directory takes.",
            (of.total("process_memory_usage_bytes"), "resident"),
            (of.total("bireme_io_directory_usage_bytes"), "directory"),
        ),
    ],
)
cores = Row(
    "Cores",
    [
        lines(
            "Pieces waiting for a read",
            "short",
            "Pieces of rows that wait for a read, by core.",
            (of.total("bireme_io_ring_queue", by="core"), "core {{core}}"),
        ),
        lines(
            "Operations in flight",
            "short",
            "Operations in flight, by ring (one per core).",
            (of.total("bireme_io_ring_in_flight", by="core"), "core {{core}}"),
        ),
        lines(
            "Reads per submit",
            "short",
            "Reads per submission to the kernel: how well submissions are batched.",
            (of.share("bireme_io_ring_reads_total", "bireme_io_ring_submits_total", "core"), "core {{core}}"),
        ),
        stacked(
            "Reads",
            "iops",
            "Reads per second, by core: whether the load is spread evenly.",
            (of.rate("bireme_io_ring_reads_total", by="core"), "core {{core}}"),
        ),
        lines(
            "Read duration",
            "s",
            "p99 by core.",
            (of.quantile(0.99, "bireme_io_ring_read_duration_seconds", by="core"), "core {{core}}"),
        ),
        lines(
            "CPU and retries",
            "short",
            "CPU cores in use; operations per second that were submitted again.",
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
            "Successful reads per second, by drive.",
            (of.rate("bireme_io_drive_reads_total", by="drive"), "{{drive}}"),
        ),
        stacked(
            "Bytes read",
            "Bps",
            "Bytes of these reads.",
            (of.rate("bireme_io_drive_read_bytes_total", by="drive"), "{{drive}}"),
        ),
        lines(
            "Read duration",
            "s",
            "From submission to completion, by drive.",
            (of.quantile(0.5, READ, by="drive"), "{{drive}} p50"),
            (of.quantile(0.99, READ, by="drive"), "{{drive}} p99"),
        ),
        lines(
            "Reads in flight",
            "short",
            "Reads that a drive has not answered yet.",
            (of.total("bireme_io_drive_in_flight", by="drive"), "{{drive}}"),
        ),
        lines(
            "Rows per read",
            "short",
            "Cached rows per read of a drive. Coalescing and the RAM tier raise it above 1.",
            (
                (
                    f"({of.rate('bireme_io_rows_total')} - {of.rate('bireme_io_rows_from_table_total')}) /"
                    f" {of.rate('bireme_io_drive_reads_total')}"
                ),
                "rows per read",
            ),
        ),
        lines(
            "Coalesced pieces",
            "short",
            "Pieces of rows per second that shared another piece's read: `merged` added sectors to it, `deduplicated`"
            " added none.",
            (of.rate("bireme_io_coalesced_total", by="how"), "{{how}}"),
        ),
        lines(
            "Drive usage",
            "percentunit",
            "Share of a drive's slab that holds extents and journals.",
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
            "1 for the present state of a drive.",
            (of.total("bireme_io_drive_state", by="drive, state"), "{{drive}} {{state}}"),
            high=1,
        ),
        lines(
            "Faults",
            "short",
            "Per second: failed reads, bad sectors, reads given up as late, and extents dropped because of these.",
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
            "Finished fills per second, by outcome; fills that wait or are under way.",
            (of.rate("bireme_io_fills_total", by="outcome"), "{{outcome}}"),
            (of.total("bireme_io_fills_under_way"), "under way"),
        ),
        shared.drive_writes(
            of,
            "Bytes per second: extents filled, extents kept when their segment was reclaimed, all writes to drives.",
        ),
        lines("Extents", "short", "Extents on the drives.", (of.total("bireme_io_extents"), "extents")),
        lines(
            "Extents: hit ratio",
            "percentunit",
            "Share of requested rows that were on a drive when they were located.",
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
            "Extents by the number of batches that have read them, as the mean over cores. The sum over cores decides"
            " which extents are kept when a segment is reclaimed.",
            (f"avg by (heat) ({of('bireme_io_extents_heat')})", "{{heat}}"),
        ),
        lines(
            "Evicted and scrubbed",
            "short",
            "Extents per second: evicted to make space, checked by the scrubber.",
            (of.rate("bireme_io_extents_evicted_total"), "evicted"),
            (of.rate("bireme_io_extents_scrubbed_total"), "scrubbed"),
        ),
        lines(
            "RAM tier: hit ratio",
            "percentunit",
            "Share of requested sectors that were in the RAM tier.",
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
            "Bytes of sectors in the RAM tier, and its limit.",
            (of.total("bireme_io_ram_usage_bytes"), "used"),
            (of.total("bireme_io_ram_limit_bytes"), "limit"),
        ),
        lines(
            "RAM tier: admitted",
            "short",
            "Sectors per second that were admitted.",
            (of.rate("bireme_io_ram_admitted_total"), "sectors"),
        ),
        shared.store(of),
        lines(
            "Engine",
            "short",
            "The engine that carries out reads; every engine but io_uring is slower.",
            (of.total("bireme_io_engine", by="engine"), "{{engine}}"),
            high=1,
        ),
    ],
)

dashboard = Dashboard(
    "bireme-io-node",
    "Bireme: one I/O node",
    "Where the time of a node's batches goes, and the state of its drives and cache.",
    [batches, cores, drives, cache],
    [
        of_label("namespace", "namespace", "bireme_io_rows_total", everything=True),
        of_label("instance", "instance", 'bireme_io_rows_total{namespace=~"$namespace"}', everything=False),
    ],
)
