"""Draws a flame graph: `perf script --no-inline | python3 -m bench.flamegraph TITLE > FILE.svg`.

Each box is a function. Its width is the number of samples in which it or its callees ran; its callees lie on top of it.
Frames of runtimes are left out, and so are the type parameters in names.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape

WIDTH, ROW, LETTER = 1200, 17, 6.4
# A box's colour, by the prefix of its function's name.
COLOURS = {
    "bireme": "#e8a33d", "io_node": "#e8a33d", "query_node": "#e8a33d", "client": "#e8a33d", "wire": "#e8a33d",
    "distance": "#e8a33d", "lake": "#e8a33d", "lance": "#6fa8dc", "h2": "#93c47d", "tonic": "#93c47d", "hyper": "#93c47d",
}
OTHERS = "#cccccc"
PLUMBING = re.compile(r"^(tokio|std|core|alloc|futures\w*)::|^(clone3|start_thread|new::thread_start|call|\[unknown\]|_start)$")
TOO_NARROW = 0.5


@dataclass
class Box:
    """A function in the graph and the functions that it calls."""

    samples: int = 0
    calls: dict[str, "Box"] = field(default_factory=dict)

    def depth(self) -> int:
        return 1 + max((box.depth() for box in self.calls.values()), default=0)


def stacks(lines: Iterator[str]) -> Iterator[list[str]]:
    """Yields each sample's stack: the thread's name, then its functions from the outermost."""
    thread, frames = "", []
    for line in lines:
        if not line.strip():
            if thread:
                yield [thread, *reversed(frames)]
            thread, frames = "", []
        elif line[0] in "\t ":
            found = re.match(r"\s*[0-9a-f]+ (.*) \(.*\)$", line.rstrip())
            name = plain(found.group(1)) if found else ""
            if name and not PLUMBING.match(name):
                frames.append(name)
        else:
            thread = re.sub(r"[-0-9]+$", "", line.split()[0])


def plain(name: str) -> str:
    """Returns a symbol without offset, hash and type parameters."""
    name = re.sub(r"\+0x[0-9a-f]+$|::h[0-9a-f]{16}", "", name)
    as_trait = re.match(r"<(.+) as .+>::(\w+)", name)
    before = None
    while name != before:
        before, name = name, re.sub(r"<[^<>]*>", "", name)
    if as_trait:
        kind = re.sub(r"<.*", "", as_trait.group(1)).lstrip("&")
        name = f"{kind}::{as_trait.group(2)}"
    return name.strip(":").replace("{{closure}}", "{}")


def draw(title: str, root: Box) -> str:
    """Returns the graph as SVG, with the outermost functions at the bottom."""
    height = (root.depth() + 2) * ROW
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="monospace" font-size="11">',
        f'<text x="4" y="{ROW}" font-size="13">{escape(title)} ({root.samples} samples)</text>',
    ]

    def put(name: str, box: Box, x: float, level: int) -> None:
        width = WIDTH * box.samples / root.samples
        if width < TOO_NARROW:
            return
        y = height - (level + 1) * ROW
        colour = next((it for start, it in COLOURS.items() if name.lstrip("<").startswith(start)), OTHERS)
        label = escape(name if len(name) * LETTER < width else name[: max(0, int(width / LETTER) - 1)])
        tip = f"{escape(name)}: {100 * box.samples / root.samples:.1f} %"
        parts.append(f'<g><title>{tip}</title><rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 1}" '
                     f'fill="{colour}"/><text x="{x + 2:.1f}" y="{y + 12}">{label}</text></g>')
        for called, inner in sorted(box.calls.items()):
            put(called, inner, x, level + 1)
            x += WIDTH * inner.samples / root.samples

    x = 0.0
    for name, box in sorted(root.calls.items()):
        put(name, box, x, 0)
        x += WIDTH * box.samples / root.samples
    return "\n".join([*parts, "</svg>\n"])


def main() -> None:
    """Reads samples from stdin and writes the graph to stdout."""
    root = Box()
    for stack in stacks(sys.stdin):
        box = root
        box.samples += 1
        for name in stack:
            box = box.calls.setdefault(name, Box())
            box.samples += 1
    if not root.samples:
        sys.exit("there are no samples on stdin; pipe the output of `perf script` into this command")
    sys.stdout.write(draw(sys.argv[1] if len(sys.argv) > 1 else "CPU", root))


if __name__ == "__main__":
    main()
