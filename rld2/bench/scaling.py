"""How the cost of one update grows with K (components), M (samples a state) and N (reverse steps)."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rld2.bench.problem import Sizes, make_problem
from rld2.bench.timing import Timing, interleave
from rld2.bench.update import our_call

SMALL = Sizes(width=32, layers=1)
LENGTHS, SAMPLES = (2, 4, 8, 16, 32), (4, 8, 16, 32, 64)
SERIES: dict[str, dict[int, Sizes]] = {
    "K, with N = 4": {k: replace(SMALL, K=k, N=4) for k in LENGTHS},
    "K, with N = K": {k: replace(SMALL, K=k) for k in LENGTHS},
    "M, with K = N = 4": {m: replace(SMALL, M=m) for m in SAMPLES},
}


class Series(NamedTuple):
    timings: dict[int, Timing]

    @property
    def exponent(self) -> float:
        """Slope in log-log coordinates over the larger half: 1 is linear growth."""
        values = sorted(self.timings)[len(self.timings) // 2 :]
        return float(np.polyfit(np.log(values), np.log([self.timings[v].median for v in values]), 1)[0])


def measure_scaling(repeats: int) -> dict[str, Series]:
    """All sizes take turns in one run; a size that two series share is measured once."""
    calls = {str(sizes): sizes for series in SERIES.values() for sizes in series.values()}
    timings = interleave({name: our_call(make_problem(sizes)) for name, sizes in calls.items()}, repeats)
    return {
        name: Series({value: timings[str(sizes)] for value, sizes in series.items()}) for name, series in SERIES.items()
    }


def plot(results: dict[str, Series], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(results), figsize=(4 * len(results), 3.4), sharey=True, layout="constrained")
    for axis, (name, series) in zip(axes, results.items(), strict=True):
        values = np.array(sorted(series.timings))
        milliseconds = np.array([1e3 * series.timings[v].median for v in values])
        axis.loglog(values, milliseconds, "o-", label=f"measured, slope {series.exponent:.2f}")
        axis.loglog(values, milliseconds[-1] * values / values[-1], ":", color="grey", label="linear")
        axis.set_xlabel(name)
        axis.set_xticks(values, [str(v) for v in values])
        axis.minorticks_off()
        axis.legend(frameon=False)
    axes[0].set_ylabel("one update, ms")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
