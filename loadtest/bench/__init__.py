"""Measures the drive's limit, Bireme and its peers in turn, on one machine.

    tables.py        makes the tables, once
    fio.py           the limit: random reads of 4 KiB from the same slabs
    bireme.py        starts nodes, and runs `bireme bench` on them
    peer.py          the process that applies load to a peer (pylance, pyarrow)
    instructions.py  instructions per query, counted by callgrind
    disk.py          the block layer's counters
    rounds.py        the order of the measurements
    limits.py        Bireme beside the limits of the machine
    keys.py          gets by key
    lookups.py       many keys: Lookup streams, Gets, rows by address
    searches.py      searches by vector with filters, of words, and by filters alone
    cache.py         fills, eviction, restarts, overload
    telemetry.py     the cost of metrics and traces
    attacks.py       latency of probes and good callers under attack
    access.py        the cost of access control and of TLS
    fairness.py      a grant's latency while another grant asks for ten times its share
    clients.py       searches by LanceDB's client, and the cost of plain HTTP
    store.py         first requests and cold caches over a store that is far away
    changes.py       searches of changed tables: appends, deletions, index segments, stable row ids
    tuned.py         recall and cost of searches that ask for a recall
    publishing.py    gets by key while versions of their table are published
    goals.py         compares results with goals
    report.py plots.py   JSON, Markdown, SVG
"""
