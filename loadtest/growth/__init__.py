"""Both tiers as processes on loopback, that grow while k6 puts load on them: `python3 -m growth`, which k6/run starts.

    loopback.py      the nodes, and how there come to be more
    stages.py        how many there are when, and what they served meanwhile
    teller.py        where k6 asks who is there, and says how far its load is
"""
