"""How numbers are written for people: with their noun, with so many digits, in their unit."""

import math
from collections.abc import Callable, Iterable, Sequence


def count_of(number: int, noun: str) -> str:
    """Format a count with its noun: `1 node`, `2 nodes`."""
    return f"{number} {noun}" + (
        "" if number == 1 else "s"
    )  # NumPy's numbers too: their truth values multiply no text


def runs_each(counts: Sequence[int]) -> str:
    """Format `3 runs each`; `1 to 3 runs each` where sides have different numbers."""
    least, most = min(counts), max(counts)
    return "one run each" if most == 1 else f"{f'{least} to ' * (least < most)}{most} runs each"


def listed(words: Sequence[str]) -> str:
    """Join words as `a, b and c`."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def worker(device: str) -> str:
    """Return what people call a worker, by its device (`cpu`, `cuda`, or whatever others computed
    on).
    """
    return {"cpu": "worker", "cuda": "GPU"}.get(device, "accelerator")


def rounded(value: float, digits: int) -> str:
    """Round to so many significant digits, but keep all digits of a larger number: `0.12`,
    `1,234`.
    """
    if abs(value) >= 10**digits - 0.5:
        return f"{value:,.0f}"
    text = f"{value:,.{digits}g}"
    return f"{float(text):f}".rstrip("0").rstrip(".") if "e" in text else text


def amount(value: float) -> str:
    """Round to three significant digits, but keep all digits of large numbers: `1234`, `0.5`;
    `<0.001` if it is less.
    """
    return (
        f"{value:.0f}"
        if value >= 100 or value == int(value)
        else f"{value:.3g}"
        if value >= 0.001
        else "<0.001"
    )


def two_digits(value: float) -> str:
    """Round an estimate to two significant digits: `5.9`, `12`."""
    return rounded(value, 2)


def digits(value: float) -> str:
    """Round to three significant digits, large numbers too: `1,280`, `0.95`."""
    return rounded(float(f"{value:.3g}"), 3)


def four_digits(value: float | None) -> str:
    """Round a measurement to four significant digits: `0.9512`, `12,811`; `unknown`."""
    return "unknown" if value is None or value != value else rounded(value, 4)


def between(low: float, high: float, *, formatter: Callable[[float], str] = two_digits) -> str:
    """Format a range: `6 to 9`; one number where both ends are written alike."""
    return " to ".join(dict.fromkeys((formatter(low), formatter(high))))


def with_distinct_ends(low: float, high: float) -> str:
    """Format a range as `0.92 to 1.05`, with enough digits to distinguish the ends from each other
    and from 1; both to one place if they are close.
    """
    places = 2 - math.floor(math.log10(high))
    kept = [round(end, places) if high < 1.2 * low else float(f"{end:.2g}") for end in (low, high)]
    if high >= 1.2 * low and 1.0 in kept:  # on which side of 1 it is, matters
        kept = [float(f"{end:.3g}") for end in (low, high)]
    return between(*kept, formatter=digits)


def around(
    middle: float,
    low: float | None,
    high: float | None,
    formatter: Callable[[float], str] = four_digits,
) -> str:
    """Format a value with its interval: `980 (900 to 1100)`; without an interval, or where all
    three are written alike, `980`.
    """
    ends = [formatter(end) for end in (low, high) if end is not None and end == end]
    return (
        formatter(middle)
        if {*ends} <= {formatter(middle)}
        else f"{formatter(middle)} ({' to '.join(dict.fromkeys(ends))})"
    )


def percents(low: float, high: float) -> str:
    """Format shares as `6 to 9 %`."""
    return f"{between(100 * low, 100 * high)} %"


def total(values: Iterable[float | None], formatter: Callable[[float], str] = amount) -> str:
    """Format the sum; `?` if nothing is known, with `>` before it if some of it is not."""
    values = list(values)
    numbers = [value for value in values if value is not None]
    if values and not numbers:
        return "?"
    return (">" if len(numbers) < len(values) else "") + formatter(sum(numbers))


def duration(seconds: float, formatter: Callable[[float], str] = amount) -> str:
    """Format a duration: `2.5 h`, `3 min`, `0.5 s`."""
    unit, name = next(
        (u, n) for u, n in ((3600, "h"), (60, "min"), (1, "s")) if seconds >= u or u == 1
    )
    return f"{formatter(seconds / unit)} {name}"


def memory_unit(most: float) -> tuple[str, int]:
    """Return the unit for memory of up to so many bytes, and its bytes."""
    return ("GiB", 2**30) if most >= 2**31 else ("MiB", 2**20)


def gigabytes(size: float) -> str:
    """Format a size: `3.5 MB`, `150.0 GB`."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
