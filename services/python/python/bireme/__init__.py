"""The Python client of Bireme, a cache for big Lance tables.

`connect` connects to a query node; `serve` starts one for a table and connects to it. Rows are pyarrow tables, whose
buffers are those that arrived from the network.

>>> import bireme
>>> db = bireme.connect()  # the node that BIREME_ENDPOINT names, or 127.0.0.1:7070
>>> words = db.table("words")
>>> words.search("strong wind").select("words", "gloss").limit(2).to_arrow().num_rows
2
>>> words.get("n02503517", columns=["words"])["words"]
['elephant']
"""

from ._connection import AsyncConnection, Connection, connect, connect_async
from ._descriptions import (
    Explanation,
    Index,
    IoNode,
    Stage,
    Status,
    TableDescription,
    TableSummary,
    TableVersion,
    Tag,
    WarmProgress,
)
from ._errors import (
    BadRequestError,
    DeadlineError,
    DeniedError,
    Error,
    NotFoundError,
    OverloadedError,
    UnavailableError,
)
from ._search import AsyncSearch, Search
from ._serve import Server, serve
from ._table import AsyncTable, PartialRows, Table

__all__ = [
    "AsyncConnection",
    "AsyncSearch",
    "AsyncTable",
    "BadRequestError",
    "Connection",
    "DeadlineError",
    "DeniedError",
    "Error",
    "Explanation",
    "Index",
    "IoNode",
    "NotFoundError",
    "OverloadedError",
    "PartialRows",
    "Search",
    "Server",
    "Stage",
    "Status",
    "Table",
    "TableDescription",
    "TableSummary",
    "TableVersion",
    "Tag",
    "UnavailableError",
    "WarmProgress",
    "connect",
    "connect_async",
    "serve",
]
