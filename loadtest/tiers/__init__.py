"""Nodes of both tiers as processes: what `network` runs in namespaces, and `growth` on loopback.

    fault.py         what goes wrong
    node.py          a process under way
    arguments.py     what nodes are started with
    members.py       the list of I/O nodes that query nodes follow
    asked.py         what `bireme` answers about them
    counters.py      what they count, from their /metrics
    interrupt.py     signals that end a run, once
"""
