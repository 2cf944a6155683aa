"""Makes the images as archives that the nodes import: Bireme's, and those that the chart pulls from registries, which
are made here from programs of this machine."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from .layout import BIN, CACHE, IMAGE
from .process import run

FOLDER = CACHE / "kubernetes" / "images"
BIREME = "bireme:e2e"
BUSYBOX = "busybox:1.37"
K6 = "grafana/k6:1.8.1"
# The static busybox of Debian's package busybox-static.
SHELL = Path("/bin/busybox")
APPLETS = ["sh", "cp", "mkdir", "mv", "sleep", "test"]


def make(bireme: Path) -> list[Path]:
    FOLDER.mkdir(parents=True, exist_ok=True)
    image = FOLDER / "bireme.tar"
    make_unless_current(image, bireme, lambda: run(IMAGE / "build", bireme, BIREME, image, timeout=300))
    return [
        image,
        program_image("busybox.tar", BUSYBOX, "/bin/busybox", SHELL, "bin", APPLETS),
        program_image("pause.tar", "pause:1", "/bin/busybox,sleep,infinity", SHELL, "bin"),
        program_image("k6.tar", K6, "/usr/bin/k6", BIN / "k6", "usr/bin"),
    ]


def program_image(file: str, name: str, entrypoint: str, program: Path, folder: str, links: list | None = None) -> Path:
    archive = FOLDER / file

    def write() -> None:
        with tempfile.TemporaryDirectory() as root:
            place = Path(root) / folder
            place.mkdir(parents=True)
            (place / program.name).write_bytes(program.read_bytes())
            (place / program.name).chmod(0o755)
            for link in links or []:
                (place / link).symlink_to(program.name)
            Path(root).chmod(0o755)
            run(IMAGE / "archive", name, entrypoint, archive, root)

    make_unless_current(archive, program, write)
    return archive


def make_unless_current(archive: Path, program: Path, write: Callable[[], None]) -> None:
    """Makes the archive unless it was made from this same program. Comparing times would not suffice: a binary of
    another build profile may be older than the archive."""
    note, found = archive.with_suffix(".of"), program.stat()
    identity = f"{program.resolve()} {found.st_size} {found.st_mtime_ns}\n"
    if archive.exists() and note.exists() and note.read_text() == identity:
        return
    note.unlink(missing_ok=True)
    write()
    note.write_text(identity)
