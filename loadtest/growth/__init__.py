"""Runs both tiers as processes on loopback and adds nodes while k6 applies load to them: `python3 -m growth`, started
by k6/run.

    loopback.py      starts and lists nodes
    stages.py        the tiers' sizes by stage, and what each node served in it
    stage_server.py  tells k6 over HTTP which nodes to use, and learns from it which stage the load has reached
"""
