"""Writes figures as text for the report."""

from statistics import median


def rounded(value: float | None) -> str:
    """Returns a value with four digits, or all digits before the decimal point; a dash for none."""
    if value is None:
        return "–"
    if abs(value) >= 1e7:
        return f"{value:.3g}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def spread(ratios: list[float]) -> str:
    """Returns the median of the rounds, with the least and the most."""
    return f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def peer_latency(run: dict) -> dict[str, float]:
    """Returns the latencies of a peer's run, in the form that those of `bireme bench` have."""
    return {part: run[f"{part}_us"] for part in ["p50", "p99"]}
