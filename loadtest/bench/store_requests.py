"""The requests of `store`, the same for Bireme and pylance."""

import numpy as np

K, NPROBES, REFINE = 50, 20, 10
DIMENSION = 768
# Lineitem's columns are all of its 16.
COLUMNS = None
KEY = "sku"
TAKEN = 1000


def question(number: int) -> list[float]:
    """A vector to search for."""
    return np.random.default_rng(number).standard_normal(DIMENSION, dtype=np.float32).tolist()


def rows_of(number: int, rows: int) -> list[int]:
    """Random rows, by their positions."""
    return np.sort(np.random.default_rng(number).choice(rows, TAKEN, replace=False)).tolist()
