"""Sizes of the tables, slabs and measurements."""

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Profile:
    """The sizes of one profile; profiles/small.toml explains them."""

    name: str
    folder: Path
    memory_folder: Path
    rounds: int
    seconds: float
    rows: int
    dimension: int
    centres: int
    partitions: int
    payload_rows: int
    pair_rows: int
    document_rows: int
    scale_factor: int
    slab_gib: int
    ram_tier_gib: int
    drive_folders: list[Path]
    depths: list[int]
    jobs: int

    @staticmethod
    def read(name: str, folder: str | None, rounds: int | None) -> "Profile":
        """Reads the profile `name`. `folder` and `rounds` replace the profile's values if they are given."""
        text = (Path(__file__).parent / "profiles" / f"{name}.toml").read_text()
        raw = tomllib.loads(text)
        place = Path(folder or raw["folder"])
        return Profile(
            name=name,
            folder=place,
            memory_folder=Path(raw["memory_folder"]),
            rounds=rounds or raw["rounds"],
            seconds=raw["seconds"],
            rows=raw["vectors"]["rows"],
            dimension=raw["vectors"]["dimension"],
            centres=raw["vectors"]["centres"],
            partitions=raw["vectors"]["partitions"],
            payload_rows=raw["payload"]["rows"],
            pair_rows=raw["pairs"]["rows"],
            document_rows=raw["documents"]["rows"],
            scale_factor=raw["lineitem"]["scale_factor"],
            slab_gib=raw["cache"]["slab_gib"],
            ram_tier_gib=raw["cache"]["ram_tier_gib"],
            drive_folders=[Path(it) for it in raw["drives"]["folders"]] or [place],
            depths=raw["fio"]["depths"],
            jobs=min(raw["fio"]["jobs"], len(os.sched_getaffinity(0))),
        )

    def table(self, name: str) -> str:
        """Returns the URI of a Lance table."""
        return str(self.folder / f"{name}.lance")

    def parquet(self, name: str) -> str:
        """Returns the path of a table's rows as Parquet."""
        return str(self.folder / f"{name}.parquet")
