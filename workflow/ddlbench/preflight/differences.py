"""What of many ranks' facts is kept: all of the first rank's, and of each other rank what is not the same there.

A thousand ranks see the same software, modules and interfaces. `__main__.py` judges the facts whole, then writes these.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

ALWAYS = ("rank", "host", "local_rank")  # who it is
DIGITS = 6  # that matter, of what is measured
EXACT = ("started",)  # a time since 1970
WHOLE = "whole"


def differences(ranks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row per rank, the first one whole.

    In each other row a key that is not there has the first row's value, and `a.b` stands for key b of a's value. A rank
    that left other keys than the first one, because it did not get as far, has all it left in a row marked WHOLE.
    """
    rounded = [{key: value if key in EXACT else _rounded(value) for key, value in facts.items()} for facts in ranks]
    rows = rounded[:1]
    for facts in rounded[1:]:
        if facts.keys() != rows[0].keys():
            rows.append(facts | {WHOLE: True})
            continue
        who = {key: facts[key] for key in ALWAYS if key in facts}
        rows.append(who | {name: value for key in facts for name, value in _unlike(key, facts[key], rows[0][key])})
    return rows


def _unlike(name: str, mine: Any, first: Any) -> Iterator[tuple[str, Any]]:
    """What of a value is not the first rank's, with its name."""
    if isinstance(mine, dict) and isinstance(first, dict) and mine.keys() == first.keys():
        for key in mine:
            yield from _unlike(f"{name}.{key}", mine[key], first[key])
    elif mine != first:
        yield name, mine


def _rounded(value: Any) -> Any:
    """The value with DIGITS digits in its numbers that are no whole ones."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return [_rounded(inner) for inner in value] if isinstance(value, list) else value
