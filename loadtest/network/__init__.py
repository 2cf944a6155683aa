"""Runs both tiers as processes of one machine, each in a network namespace with an address of its own.

    namespaces.py    the network: a switch and a link to each node, which can be cut and slowed
    relay.py         a link in user space that delays and loses frames, for kernels without netem
    nodes.py         nodes of Bireme in the network (tiers/), and their list of I/O nodes
    table.py         a table whose rows are computed from their numbers
    load.py          runs `bireme bench` in a namespace of its own
    watch.py         samples the nodes' counters several times per second
    audit.py         reads rows during a load and compares them with their expected values
    matrix.py        the cost per row by the number of nodes
    faults.py        nodes killed, cut off, slowed, stopped, added and removed under load
    lists.py         invalid lists of I/O nodes
    strangers.py     servers that are not I/O nodes, for lists to name
    many.py          300 I/O nodes
    report.py        writes the results as JSON and Markdown
"""
