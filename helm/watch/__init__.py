"""Checks that every query of dashboards, rules, scalers and runbooks returns values, in a real Prometheus over real
nodes under load: `python3 -m watch --bireme BINARY` in helm/."""
