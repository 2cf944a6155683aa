"""Pylance's first requests to a table in an object store: `python -m bench.first_requests URI KIND OPTIONS`.

Prints two times in seconds, as JSON: that of opening the table and the first request together, and that of the second
request. KIND is `search`, `take` or `get`; OPTIONS are the store's, as JSON. Importing the library is not timed.
"""

import json
import sys
import time

import lance
import numpy as np

from .store_requests import COLUMNS, K, KEY, NPROBES, REFINE, question, rows_of


def main() -> None:
    """See above."""
    uri, kind, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    began = time.perf_counter()
    table = lance.dataset(uri, storage_options=options)
    seconds, counts = [], []
    for number in range(2):
        if kind == "search":
            nearest = {"column": "vector", "q": np.array(question(number), np.float32), "k": K}
            nearest |= {"nprobes": NPROBES, "refine_factor": REFINE}
            counts.append(table.to_table(nearest=nearest, columns=["id"]).num_rows)
        elif kind == "take":
            counts.append(table.take(rows_of(number, table.count_rows()), columns=COLUMNS).num_rows)
        else:
            counts.append(table.to_table(filter=f"{KEY} = 'SKU-{number:09d}'", columns=["price"]).num_rows)
        seconds.append(time.perf_counter() - began)
        began = time.perf_counter()
    print(json.dumps({"seconds": seconds, "rows": counts}))


main()
