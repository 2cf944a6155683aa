"""Measures how fast Lance itself reads columns: `python -m bench.scan URI COLUMN ...`, one JSON object on stdout."""

import json
import resource
import sys
import time

import lance


def main() -> None:
    """Reads all rows once, in table order."""
    table = lance.dataset(sys.argv[1])
    began = time.monotonic()
    size = sum(batch.nbytes for batch in table.to_batches(columns=sys.argv[2:]))
    seconds = time.monotonic() - began
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu = usage.ru_utime + usage.ru_stime
    print(json.dumps({"seconds": seconds, "mb_per_s": size / seconds / 1e6, "cpu_s_per_gb": cpu / (size / 1e9)}))


main()
