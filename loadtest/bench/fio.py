"""Measures the drive's limit for random reads of 4 KiB, with fio.

fio reads the same slabs as Bireme, because a drive, above all a virtual one, is not equally fast everywhere.
"""

import json
import resource
import subprocess
from pathlib import Path

from . import disk

# The minimum share of fio's reads that the block layer must have counted. It is below 1, because the block layer
# merges some adjacent reads.
FROM_DRIVE = 0.98


def write_once(slabs: list[Path], gib: int) -> None:
    """Writes random bytes to every block of the slabs, which a node then overwrites. A file system returns zeros for
    blocks that were never written, without reading the drive, so fio would exceed the drive's limit."""
    subprocess.run(_writes(slabs, gib, "--bs=1M", "--iodepth=4"), check=True, capture_output=True)


def random_reads(
    slabs: list[Path], slab_bytes: int, depth: int, jobs: int, seconds: float, rate: float | None = None
) -> dict:
    """Reads the first `slab_bytes` of each slab, at `depth` over all jobs, as fast as possible or at `rate` per second.

    Raises RuntimeError if the block layer counted less than `FROM_DRIVE` of fio's reads."""
    jobs = min(jobs, depth)
    command = [
        "fio", "--name=read", f"--filename={':'.join(map(str, slabs))}", f"--size={slab_bytes * len(slabs)}",
        "--readonly", "--rw=randread", "--bs=4k", "--direct=1",
        "--ioengine=io_uring", "--fixedbufs", "--registerfiles", "--norandommap", "--randrepeat=0",
        f"--iodepth={depth // jobs}", f"--numjobs={jobs}", "--group_reporting",
        "--iodepth_batch_submit=16", "--iodepth_batch_complete_min=1", "--iodepth_batch_complete_max=64",
        f"--runtime={seconds}", "--time_based", "--output-format=json",
    ]  # fmt: skip
    if rate:
        command += [f"--rate_iops={int(rate / jobs)}", "--rate_process=poisson"]
    watch = disk.Watch(slabs)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    drive_reads = watch.counted().reads
    read = json.loads(done.stdout)["jobs"][0]["read"]
    if drive_reads < FROM_DRIVE * read["total_ios"]:
        raise RuntimeError(f"fio made {read['total_ios']} reads, but only {drive_reads} reached the drive: write every block of the slabs first")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    latency = read["clat_ns"]["percentile"]
    return {
        "depth": depth,
        "jobs": jobs,
        "rate": rate,
        "iops": read["iops"],
        "reads": read["total_ios"],
        "drive_reads": drive_reads,
        "cpu_us_per_io": cpu * 1e6 / read["total_ios"],
        "p50_us": latency["50.000000"] / 1e3,
        "p99_us": latency["99.000000"] / 1e3,
        "command": " ".join(command),
    }


def sequential_writes(slabs: list[Path], gib: int) -> dict:
    """Writes files sequentially in writes of 256 KiB at depth 8, as fills do through two cores' rings, and syncs them.
    The files are new, because a file system overwrites blocks faster, and are removed afterwards."""
    command = _writes(
        slabs, gib, "--bs=256k", "--iodepth=8", "--fallocate=native", "--unlink=1", "--output-format=json"
    )  # fmt: skip
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    write = json.loads(done.stdout)["jobs"][0]["write"]
    return {"mb_per_s": write["bw_bytes"] / 1e6, "command": " ".join(command)}


def _writes(slabs: list[Path], gib: int, *how: str) -> list[str]:
    """Returns the command that writes slabs of `gib` in total, sequentially, and syncs them."""
    return [
        "fio", "--name=write", f"--filename={':'.join(map(str, slabs))}", f"--size={gib}G",
        "--rw=write", "--direct=1", "--ioengine=io_uring", "--end_fsync=1", *how,
    ]  # fmt: skip
