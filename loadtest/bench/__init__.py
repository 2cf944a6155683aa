"""One machine, one run: the drive's limit, Bireme, and its peers, interleaved.

    tables.py        makes the tables, once
    fio.py           the limit: random reads of 4 KiB from the same slabs
    bireme.py        nodes, and `bireme bench` on them
    peer.py          the process that puts load on a peer (pylance, pyarrow)
    instructions.py  instructions a query, counted by callgrind
    disk.py          what the block layer counted meanwhile
    rounds.py        all of it, in the order in which it is measured
    goals.py         which goals hold
    report.py plots.py   JSON, Markdown, SVG
"""
