"""Runs nodes of both tiers as processes, for `network` in namespaces and for `growth` on loopback.

    fault.py         exceptions that end a run
    node.py          a node's process
    arguments.py     the nodes' command lines and settings
    members.py       the list of I/O nodes that query nodes follow
    cli.py           answers of the `bireme` command
    counters.py      the nodes' counters, from their /metrics
    interrupt.py     signals that end a run
"""
