"""Queries as panels ask them. `Selection` is whose series are looked at.

A histogram is asked for as a native one first and, where there is none, as the text format's buckets, so that a
dashboard is right with either way of scraping."""

from dataclasses import dataclass

WINDOW = "$__rate_interval"


@dataclass(frozen=True)
class Selection:
    """Label matchers that each series of a dashboard has to meet."""

    matchers: str

    def __call__(self, metric: str, more: str = "") -> str:
        return f"{metric}{{{', '.join(filter(None, [more, self.matchers]))}}}"

    def rate(self, counter: str, more: str = "", by: str = "") -> str:
        """A counter's growth a second, summed up to the labels `by`."""
        return f"{summed(by)} (rate({self(counter, more)}[{WINDOW}]))"

    def total(self, gauge: str, more: str = "", by: str = "") -> str:
        return f"{summed(by)} ({self(gauge, more)})"

    def share(self, part: str, whole: str, by: str = "") -> str:
        """One counter's part of another."""
        return f"{self.rate(part, by=by)} / {self.rate(whole, by=by)}"

    def quantile(self, quantile: float, histogram: str, more: str = "", by: str = "") -> str:
        native = self.rate(histogram, more, by)
        classic = self.rate(f"{histogram}_bucket", more, ", ".join(filter(None, [by, "le"])))
        return f"histogram_quantile({quantile}, {native}) or histogram_quantile({quantile}, {classic})"

    def count(self, histogram: str, more: str = "", by: str = "") -> str:
        """How many values a second."""
        native = f"{summed(by)} (histogram_count(rate({self(histogram, more)}[{WINDOW}])))"
        return f"{native} or {self.rate(f'{histogram}_count', more, by)}"

    def sum(self, histogram: str, more: str = "", by: str = "") -> str:
        """What the values of a second come to."""
        native = f"{summed(by)} (histogram_sum(rate({self(histogram, more)}[{WINDOW}])))"
        return f"{native} or {self.rate(f'{histogram}_sum', more, by)}"

    def mean(self, histogram: str, more: str = "", by: str = "") -> str:
        return f"({self.sum(histogram, more, by)}) / ({self.count(histogram, more, by)})"


def summed(by: str) -> str:
    return f"sum by ({by})" if by else "sum"
