"""Draws the report's plots."""

from pathlib import Path
from statistics import median

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

# Makes the files depend only on the data.
matplotlib.rcParams["svg.hashsalt"] = "bireme"
METADATA = {"Date": None}


def draw(results: dict, output: Path) -> None:
    """Draws the plots for which there are results."""
    if "cache" in results:
        _eviction(results["cache"]["eviction"], output / "eviction.svg")
    if "rounds" not in results:
        return
    steps = results["rounds"]["steps"]
    _depth(steps, output / "depth.svg")
    _cpu(steps, output / "cpu.svg")
    _queues(steps, output / "queues.svg")


def _depth(steps: dict, path: Path) -> None:
    figure, axes = plt.subplots(figsize=(7, 4))
    depths = [it["depth"] for it in steps["fio"][0]]
    iops = [median(run[at]["iops"] for run in steps["fio"]) / 1e3 for at in range(len(depths))]
    axes.plot(depths, iops, marker="o", label="fio, 4 KiB random reads")
    for name, label in [("drive_whole", "Bireme, whole vectors"), ("drive_scored", "Bireme, scored on the node")]:
        rows = median(run["rows_per_s"] for run in steps[name]) / 1e3
        axes.axhline(rows, linestyle="--", color="C1" if name == "drive_whole" else "C2", label=label)
    axes.set(xscale="log", xlabel="reads in flight", ylabel="thousand reads or rows per second", ylim=(0, None))
    axes.set_xticks(depths, [str(depth) for depth in depths])
    axes.legend()
    _save(figure, path)


def _cpu(steps: dict, path: Path) -> None:
    figure, axes = plt.subplots(figsize=(7, 4))
    names = ["drive_whole", "drive_scored", "memory_whole", "memory_scored", "ram_scored"]
    left = [0.0] * len(names)
    for part, label in [("io_cpu_us", "I/O node"), ("client_cpu_us", "client")]:
        widths = [median(run["cpu"][part] / max(1, run["rows"]) for run in steps[name]) for name in names]
        axes.barh(names, widths, left=left, label=label)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    best = [max(run, key=lambda it: it["iops"])["cpu_us_per_io"] for run in steps["fio"]]
    axes.axvline(median(best), linestyle="--", color="black", label="fio, per I/O of the drive")
    axes.invert_yaxis()
    axes.set(xlabel="CPU per row, µs")
    axes.legend()
    _save(figure, path)


def _queues(steps: dict, path: Path) -> None:
    names = [name for name in ["drive_whole", "drive_scored", "search_cold"] if steps[name][0].get("queues")]
    if not names:
        return
    figure, all_axes = plt.subplots(len(names), 1, figsize=(7, 3 * len(names)), squeeze=False)
    for axes, name in zip(all_axes[:, 0], names, strict=True):
        samples = steps[name][0]["queues"]
        seconds = [it["seconds"] for it in samples]
        lines = [("pieces_waiting", "pieces waiting for a read"), ("reads_in_flight", "reads in flight")]
        if samples[0]["searches_waiting"] is not None:
            lines.insert(0, ("searches_waiting", "searches waiting for a core"))
        for field, label in lines:
            axes.plot(seconds, [it[field] for it in samples], label=label)
        right = axes.twinx()
        right.plot(seconds, [it["reply_bytes"] / 2**20 for it in samples], color="grey", alpha=0.6)
        right.set(ylabel="replies, MiB (grey)", ylim=(0, None))
        axes.set(title=name, xlabel="seconds", ylabel="waiting", ylim=(0, None))
        axes.legend(loc="center right", fontsize="small")
    figure.tight_layout()
    _save(figure, path)


def _eviction(eviction: dict, path: Path) -> None:
    traces = eviction["traces"]
    policies = [it["policy"] for it in traces[0]["policies"]]
    figure, axes = plt.subplots(figsize=(8, 4))
    width = 0.8 / len(policies)
    for at, policy in enumerate(policies):
        places = [number + (at - len(policies) / 2 + 0.5) * width for number in range(len(traces))]
        axes.bar(places, [trace["policies"][at]["hit_ratio"] for trace in traces], width, label=policy)
    axes.set(ylabel="hit ratio", ylim=(0, 1))
    axes.set_xticks(range(len(traces)), [trace["trace"] for trace in traces])
    axes.legend(fontsize="small")
    _save(figure, path)


def _save(figure: plt.Figure, path: Path) -> None:
    figure.savefig(path, metadata=METADATA, bbox_inches="tight")
    plt.close(figure)
