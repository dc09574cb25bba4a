"""Curves with a few parameters, fitted to a series: what all models but `regression` have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import TYPE_CHECKING

from ddlbench.analysis.prediction import Measured, Prediction, TooLittleError

if TYPE_CHECKING:
    from ddlbench.analysis.prediction import Floats

# Rate of all workers in units of the rate of one, by number of workers and parameters.
Curve = Callable[["Floats", "Floats"], "Floats"]


def need(measured: Measured, points: int, model: str) -> None:
    """Raises TooLittleError if the series has fewer points."""
    if len(measured.workers) < points:
        raise TooLittleError(f"{model} needs {points} measured worker counts, there are {len(measured.workers)}")


def fit(
    curve: Curve, starts: Sequence[Sequence[float]], bounds: tuple[float, float], measured: Measured, at: Sequence[int]
) -> Prediction:
    """The curve that is nearest to the points by the squares of relative errors, over a free rate of one worker.

    `starts` are the first guesses of each parameter; all combinations are tried and the best fit is kept.
    """
    import numpy as np
    from scipy.optimize import least_squares

    workers, rates = np.array(measured.workers, float), np.log(np.array(measured.images_per_s))

    def errors(parameters: Floats) -> Floats:
        shape = np.log(np.maximum(curve(workers, parameters[1:]), 1e-9))
        return np.asarray(parameters[0] + shape - rates)

    low, high = bounds
    lows = [-np.inf, *[low] * len(starts)]
    fits = [
        least_squares(errors, [float(rates[0]), *start], bounds=(lows, [np.inf, *[high] * len(starts)]))
        for start in product(*starts)
    ]
    best = min(fits, key=lambda one: float(one.cost)).x
    wanted = np.array(at, float)
    return Prediction(np.exp(best[0]) * np.maximum(curve(wanted, best[1:]), 1e-9))
