"""Builds the queries of panels. A `Selection` selects the nodes whose series are shown.

A query for a histogram uses the native histogram and falls back to the buckets of the text format, so that
dashboards work with both ways of scraping."""

from dataclasses import dataclass

WINDOW = "$__rate_interval"


@dataclass(frozen=True)
class Selection:
    """The label matchers of every series on a dashboard."""

    matchers: str

    def __call__(self, metric: str, more: str = "") -> str:
        return f"{metric}{{{', '.join(filter(None, [more, self.matchers]))}}}"

    def rate(self, counter: str, more: str = "", by: str = "") -> str:
        """Returns a counter's growth per second, summed by the labels `by`."""
        return f"{summed(by)} (rate({self(counter, more)}[{WINDOW}]))"

    def total(self, gauge: str, more: str = "", by: str = "") -> str:
        return f"{summed(by)} ({self(gauge, more)})"

    def share(self, part: str, whole: str, by: str = "") -> str:
        """Returns the ratio of one counter's rate to another's."""
        return f"{self.rate(part, by=by)} / {self.rate(whole, by=by)}"

    def quantile(self, quantile: float, histogram: str, more: str = "", by: str = "") -> str:
        native = self.rate(histogram, more, by)
        classic = self.rate(f"{histogram}_bucket", more, ", ".join(filter(None, [by, "le"])))
        return f"histogram_quantile({quantile}, {native}) or histogram_quantile({quantile}, {classic})"

    def count(self, histogram: str, more: str = "", by: str = "") -> str:
        """Returns the number of values per second."""
        native = f"{summed(by)} (histogram_count(rate({self(histogram, more)}[{WINDOW}])))"
        return f"{native} or {self.rate(f'{histogram}_count', more, by)}"

    def sum(self, histogram: str, more: str = "", by: str = "") -> str:
        """Returns the sum of the values per second."""
        native = f"{summed(by)} (histogram_sum(rate({self(histogram, more)}[{WINDOW}])))"
        return f"{native} or {self.rate(f'{histogram}_sum', more, by)}"

    def mean(self, histogram: str, more: str = "", by: str = "") -> str:
        return f"({self.sum(histogram, more, by)}) / ({self.count(histogram, more, by)})"


def summed(by: str) -> str:
    return f"sum by ({by})" if by else "sum"
