"""The images, as archives that the nodes import: Bireme's, and those that the chart takes from registries, made of
programs of this machine."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from .layout import BIN, CACHE, IMAGE
from .process import run

FOLDER = CACHE / "kubernetes" / "images"
BIREME = "bireme:e2e"
BUSYBOX = "busybox:1.37"
K6 = "grafana/k6:1.8.1"
# Debian's package busybox-static, which has all of them in one.
SHELL = Path("/bin/busybox")
APPLETS = ["sh", "cp", "mkdir", "mv", "sleep", "test"]


def make(bireme: Path) -> list[Path]:
    FOLDER.mkdir(parents=True, exist_ok=True)
    image = FOLDER / "bireme.tar"
    once(image, bireme, lambda: run(IMAGE / "build", bireme, BIREME, image, timeout=300))
    return [
        image,
        of_program("busybox.tar", BUSYBOX, "/bin/busybox", SHELL, "bin", APPLETS),
        of_program("pause.tar", "pause:1", "/bin/busybox,sleep,infinity", SHELL, "bin"),
        of_program("k6.tar", K6, "/usr/bin/k6", BIN / "k6", "usr/bin"),
    ]


def of_program(file: str, name: str, entrypoint: str, program: Path, folder: str, links: list | None = None) -> Path:
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

    once(archive, program, write)
    return archive


def once(archive: Path, program: Path, write: Callable[[], None]) -> None:
    """Unless it is there, and of this very program: another one, of another profile say, may well be older than it."""
    note, found = archive.with_suffix(".of"), program.stat()
    identity = f"{program.resolve()} {found.st_size} {found.st_mtime_ns}\n"
    if archive.exists() and note.exists() and note.read_text() == identity:
        return
    note.unlink(missing_ok=True)
    write()
    note.write_text(identity)
