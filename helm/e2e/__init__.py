"""The chart on a real Kubernetes, on one machine: control plane and worker nodes as processes, each node in a
network namespace of its own, the real image, MinIO as object storage, k6 as the callers.

`python3 -m e2e --help` in the folder above says how to run it; `make e2e-kubernetes` builds what it needs first.
"""
