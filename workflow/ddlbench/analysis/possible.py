"""What a record or a table can say and be true: the same judgement for refused records and for the audit's rules."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from ddlbench.core.spec import steps_per_epoch

LARGEST = 2**63  # whole numbers in tables have 64 bits
ROUNDING_S = 1e-6  # times are differences of floating point numbers: nothing may come out a little below zero


def is_amount(value: Any) -> bool:
    """Whether it is a finite number, at least 0: a time, a count, an amount."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < LARGEST


def is_time(seconds: Any) -> Any:
    """Whether it is a finite time, as a difference of two times may come out [s]; of a column, row by row."""
    return (seconds >= -ROUNDING_S) & (seconds < math.inf)


def is_fraction(value: Any) -> bool:
    """Whether it is a number from 0 to 1."""
    return is_amount(value) and value <= 1


def steps(images: pd.Series[int], global_batch: pd.Series[int]) -> pd.Series[int]:
    """Steps that an epoch of so many images has, row by row."""
    return pd.Series([steps_per_epoch(i, b) for i, b in zip(images, global_batch, strict=True)], images.index, "int64")
