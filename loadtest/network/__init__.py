"""Both tiers as processes on a network of their own: a namespace and an address each, on one machine.

    namespaces.py    the network: a switch, a cable to each node; cut, slowed, mended
    relay.py         a cable in user space, that delays and loses frames, where the kernel has no netem
    nodes.py         nodes of Bireme in it (tiers/), and the list of I/O nodes that they follow
    table.py         a table whose rows can be told from their numbers
    load.py          `bireme bench` from a namespace of its own
    watch.py         what the nodes count meanwhile, several times a second
    audit.py         rows asked for all the while, and compared
    matrix.py        cost a row by the number of nodes
    faults.py        nodes killed, cut off, slowed, stopped, added and taken away under load
    lists.py         lists of I/O nodes that are wrong
    strangers.py     what a list may name in place of an I/O node
    many.py          300 I/O nodes
    report.py        JSON, Markdown
"""
