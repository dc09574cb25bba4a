"""A number with its noun, for messages and tables."""

from __future__ import annotations


def count_of(number: int, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")  # NumPy's numbers too: their truth values multiply no text
