"""Whether what watches Bireme sees anything: real nodes under load, a real Prometheus, and every query of dashboards,
rules and runbooks asked of it: `python3 -m watch --bireme BINARY` in helm/."""
