"""Runs all measurements in each round, so that drift of the machine affects all of them alike."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from . import disk, fio, memory, peers, recall
from .bireme import Bireme
from .profile import Profile
from .tier import Tier

# The parameters of the published figures: 50 rows, and 10 candidates scored exactly for each.
SEARCH = {"k": 50, "nprobes": 20, "refine": 10}
BATCH = 500
RATE_PART = 0.7
RATE_BATCH = 16
# fio's depth per job at the fixed rate, which is the number of slots of a core of Bireme. At times the drive stalls for
# 3 ms. With a depth of 64, fio delays its next reads meanwhile, so that few reads are slow and the rate is not fixed.
RATE_DEPTH = 256
COLD_THREADS = 16
# More queries than a cold run can send, because repeated ones would be answered from the page cache. Warm runs repeat
# a few queries, all of which were sent before the measurement.
COLD_QUESTIONS = 4000
# Longer than a request at depth 1 takes through both tiers.
IDLE_POLL = "300us"
SAMPLE = "50ms"


def measure(profile: Profile, binary: Path, logs: Path) -> dict:
    """Starts the nodes, warms them, and measures all rounds."""
    try:
        with memory.folder(profile), Bireme(binary, logs, profile.folder) as bireme:
            return _Rounds(profile, bireme).run()
    finally:
        for slab in [folder / name for folder in profile.drive_folders for name in ["slab", "slab-ram"]]:
            slab.unlink(missing_ok=True)


class _Rounds:
    def __init__(self, profile: Profile, bireme: Bireme) -> None:
        self.profile = profile
        self.bireme = bireme
        self.results: dict[str, list[dict]] = {}
        self.tables = {name: profile.table(name) for name in ["vectors", "payload"]}
        self.slabs = [folder / "slab" for folder in profile.drive_folders]
        # fio reads the part of each slab that holds vectors. Vectors are filled first, and each takes a sector.
        self.slab_bytes = profile.rows * 4096 // len(self.slabs)
        print("writing the drive's slabs", flush=True)
        fio.write_once(self.slabs, profile.slab_gib)
        self.drive = self._tier(self.slabs, 0, keep=True, BIREME_IO_OVERWRITE="true")
        self.memory = self._tier([profile.memory_folder / "slab-0"], 0)
        slabs = [folder / "slab-ram" for folder in profile.drive_folders]
        self.ram = self._tier(slabs, profile.ram_tier_gib)

    def _tier(self, slabs: list[Path], ram_tier_gib: int, keep: bool = False, **variables: str) -> Tier:
        return Tier.start(self.bireme, self.profile, list(self.tables), slabs, ram_tier_gib, keep, **variables)

    def run(self) -> dict:
        self._warm()
        recalls = recall.measure(self.profile, self.bireme, self.ram.query, **SEARCH)
        for number in range(self.profile.rounds):
            print(f"round {number + 1} of {self.profile.rounds}", flush=True)
            self._round(number)
        return {"steps": self.results, "recall": recalls, "search": SEARCH}

    def _warm(self) -> None:
        print("filling the drives", flush=True)
        for tier in [self.drive, self.memory, self.ram]:
            self.bireme.warm(tier.query, "vectors", ["vector"])
        for tier in [self.drive, self.memory]:
            self.bireme.warm(tier.query, "payload")
        print("filling the RAM tier", flush=True)
        for attempt in range(20):
            report = self._fetch(self.ram, "vectors", 5, "--columns", "vector", "--rerank", "50", "--seed", f"{attempt}")
            if report["nodes"]["drive_reads_per_row"] < 0.005:
                return

    def _round(self, number: int) -> None:
        seconds, seed = self.profile.seconds, str(number + 100)
        whole = ["--columns", "vector", "--seed", seed]
        scored = [*whole, "--rerank", "50"]
        depths = [self._fio(depth) for depth in self.profile.depths]
        self._note("fio", depths)
        best = max(it["iops"] for it in depths)
        self._step("drive_whole", lambda: self._fetch(self.drive, "vectors", seconds, *whole, "--sample", SAMPLE))
        self._step("drive_scored", lambda: self._fetch(self.drive, "vectors", seconds, *scored, "--sample", SAMPLE))
        self._one_row("", whole)
        rate = best * RATE_PART
        self._note("fio_rate", self._fio(RATE_DEPTH * self.profile.jobs, rate))
        fixed = [*whole, "--rows", str(RATE_BATCH), "--rate", str(rate / RATE_BATCH)]
        self._step("rate", lambda: self._fetch(self.drive, "vectors", seconds, *fixed))
        self._step("memory_whole", lambda: self._fetch(self.memory, "vectors", seconds, *whole))
        self._step("memory_scored", lambda: self._fetch(self.memory, "vectors", seconds, *scored))
        self._step("ram_scored", lambda: self._fetch(self.ram, "vectors", seconds, *scored))
        self._search(seed)
        self._payload(seed)
        self._restart_drive(BIREME_IO_IDLE_POLL=IDLE_POLL, BIREME_QUERY_IDLE_POLL=IDLE_POLL)
        self._one_row("_polling", whole)
        self._restart_drive()

    def _one_row(self, suffix: str, whole: list[str]) -> None:
        seconds, one = self.profile.seconds, [*whole, "--rows", "1", "--concurrency", "1", "--threads", "1"]
        both = [*one, "--connections", "1"]
        self._note(f"fio_depth_1{suffix}", self._fio(1))
        self._step(f"one_row_node{suffix}", lambda: self._fetch(self.drive, "vectors", seconds, *one))
        self._step(f"one_row_both{suffix}", lambda: self.drive.bench("take", "vectors", seconds, *both))

    def _restart_drive(self, **variables: str) -> None:
        """Restarts the nodes on their slabs, with other settings."""
        self.drive.stop()
        self.drive = self._tier(self.slabs, 0, keep=True, **variables)

    def _search(self, seed: str) -> None:
        seconds = self.profile.seconds
        question = ["-k", "50", "--nprobes", "20", "--refine", "10", "--columns", "_rowaddr", "--seed", seed]
        many = [*question, "--concurrency", "32", "--sample", SAMPLE]
        left = memory.drop_caches()
        self._step("search_cold", lambda: self.drive.bench("search", "vectors", seconds, *many), left)
        for name, uri in [("lance", self.tables["vectors"]), ("lance_uring", f"file+uring://{self.tables['vectors']}")]:
            left = memory.drop_caches()
            cold = ["--threads", str(COLD_THREADS), "--questions", str(COLD_QUESTIONS)]
            self._step(f"{name}_search_cold", lambda: self._peer(uri, "search", *cold), left)
        self._step("search_warm", lambda: self.ram.bench("search", "vectors", seconds, *question))
        self._warm_peer("lance_search_warm", self.tables["vectors"], "search")

    def _payload(self, seed: str) -> None:
        seconds = self.profile.seconds
        rows = ["--seed", seed]
        self._step("payload_drive", lambda: self._fetch(self.drive, "payload", seconds, *rows))
        self._step("payload_memory", lambda: self._fetch(self.memory, "payload", seconds, *rows))
        self._warm_peer("lance_payload", self.tables["payload"], "take")
        self._note("parquet_payload", self._peer(self.profile.parquet("payload"), "take", "--parquet", "--threads", "1"))
        self._note("lance_whole", self._peer(self.tables["vectors"], "take", "--columns", "vector"))

    def _fio(self, depth: int, rate: float | None = None) -> dict:
        seconds = max(2.0, self.profile.seconds / 2)
        return fio.random_reads(self.slabs, self.slab_bytes, depth, self.profile.jobs, seconds, rate)

    def _fetch(self, tier: Tier, table: str, seconds: float, *arguments: str) -> dict:
        return tier.bench("fetch", table, seconds, "--io-endpoint", tier.io.endpoint, *arguments)

    def _peer(self, uri: str, mode: str, *arguments: str) -> dict:
        question = [f"-k={SEARCH['k']}", f"--nprobes={SEARCH['nprobes']}", f"--refine={SEARCH['refine']}"]
        return peers.run(uri, mode, self.profile.seconds, *question, f"--batch={BATCH}", *arguments)

    def _warm_peer(self, name: str, uri: str, mode: str) -> None:
        """Measures the second of two runs. The first brings the rows into the page cache."""
        self._peer(uri, mode)
        self._step(name, lambda: self._peer(uri, mode))

    def _step(self, name: str, work: Callable[[], dict], cached_bytes: int | None = None) -> None:
        watch = disk.Watch(self.profile.drive_folders)
        report = work()
        report["disk"] = asdict(watch.counted())
        if cached_bytes is not None:
            report["page_cache_bytes_before"] = cached_bytes
        self._note(name, report)

    def _note(self, name: str, report: dict | list) -> None:
        self.results.setdefault(name, []).append(report)
        if isinstance(report, dict):
            rate = report.get("rows_per_s") or report.get("iops") or 0
            print(f"  {name}: {rate:,.0f}/s {report.get('error', '')}", flush=True)
