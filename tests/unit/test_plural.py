"""How numbers are written for people: one table of what each formatter gives."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from ddlbench.core.plural import amount, between, count_of, duration, gigabytes, percents, rounded, total, worker

TWO, THREE, FOUR = (partial(rounded, digits=digits) for digits in (2, 3, 4))


@pytest.mark.parametrize(
    ("say", "given", "text"),
    [
        (count_of, (1, "node"), "1 node"),
        (count_of, (2, "node"), "2 nodes"),
        (count_of, (0, "node"), "0 nodes"),
        (worker, ("cuda",), "GPU"),
        (worker, ("cpu",), "worker"),
        (worker, ("mlperf",), "accelerator"),
        (TWO, (0,), "0"),
        (TWO, (0.123,), "0.12"),
        (TWO, (0.00023,), "0.00023"),
        (TWO, (1e-7,), "0"),
        (TWO, (6.4,), "6.4"),
        (TWO, (12.5,), "12"),
        (TWO, (99.4,), "99"),
        (TWO, (99.6,), "100"),  # not 1e+02
        (TWO, (-123.4,), "-123"),
        (TWO, (12345.6,), "12,346"),
        (THREE, (999.7,), "1,000"),
        (FOUR, (1234.56,), "1,235"),
        (FOUR, (0.5,), "0.5"),
        (amount, (1234.4,), "1234"),
        (amount, (5.0,), "5"),
        (amount, (0.12345,), "0.123"),
        (amount, (0.0004,), "<0.001"),
        (amount, (0.0,), "0"),
        (between, (6.01, 9.0), "6 to 9"),
        (between, (6.01, 6.02), "6"),
        (percents, (0.061, 0.09), "6.1 to 9 %"),
        (total, ([],), "0"),
        (total, ([1.0, 2.5],), "3.5"),
        (total, ([1.0, None],), ">1"),
        (total, ([None, None],), "?"),
        (duration, (5400,), "1.5 h"),
        (duration, (90,), "1.5 min"),
        (duration, (0.25,), "0.25 s"),
        (gigabytes, (3.5e6,), "3.5 MB"),
        (gigabytes, (1.5e11,), "150.0 GB"),
    ],
)
def test_numbers_for_people(say: Callable[..., str], given: tuple[Any, ...], text: str) -> None:
    assert say(*given) == text
