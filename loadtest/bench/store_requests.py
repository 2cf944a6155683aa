"""The requests of `store`, the same for Bireme and pylance."""

import numpy as np

K, NPROBES, REFINE = 50, 20, 10
DIMENSION = 768
# Takes from lineitem return all of its 16 columns.
COLUMNS = None
KEY = "sku"
TAKEN = 1000


def question(number: int) -> list[float]:
    """Returns a vector to search for."""
    return np.random.default_rng(number).standard_normal(DIMENSION, dtype=np.float32).tolist()


def rows_of(number: int, rows: int) -> list[int]:
    """Returns the positions of random rows."""
    return np.sort(np.random.default_rng(number).choice(rows, TAKEN, replace=False)).tolist()
