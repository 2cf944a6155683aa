"""Tests the chart on a real Kubernetes on one machine. Control plane and worker nodes are processes, each node in a
network namespace of its own; the image is the real one, MinIO is the object storage, and k6 makes the requests.

`python3 -m e2e --help` in the folder above explains how to run it; `make e2e-kubernetes` builds what it needs first.
"""
