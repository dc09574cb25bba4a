"""What a source says in words agrees with the numbers of its own tables and figures.

Abstracts and conclusions are written last, and read first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import RELATIONS, contradict, fit, records

SEVERITY = "error"
NEEDS = ("claims.quantity", "claims.left", "claims.relation", "claims.value", "numbers.quantity", "numbers.value")
WHAT_TO_DO = "believe the table, and say so; ask the authors"
SOURCE = "seen in Aach et al. 2023, whose sections give two numbers for one thing"
SAID = {"about": "approx", "above": "above", "below": "below"}


def check(material: Material) -> Iterator[Finding]:
    """A finding for each number of its source that a claim contradicts: claims about a value, in the numbers' units."""
    numbers = records(material["numbers"])
    for claim in records(material["claims"]):
        if claim["relation"] not in SAID:
            continue
        side = dict(part.split("=", 1) for part in claim["left"].split(";") if "=" in part)
        said = {"relation": SAID[claim["relation"]], "value": claim["value"]}
        for number in numbers:
            if _of(claim, side, number) and contradict(said, number):
                values = [f"{RELATIONS[one['relation']]}{one['value']:g}" for one in (said, number)]
                names = (str(claim["id"]), str(number["row"]))
                yield Finding(names, f"{claim['quantity']} is said to be {values[0]}, the table has {values[1]}")


def _of(claim: dict[str, Any], side: dict[str, str], number: dict[str, Any]) -> bool:
    """Whether the number is of the claim's source and of what it is about. Nothing said there fits everything."""
    if claim["quantity"] != number["quantity"] or claim.get("source") != number.get("table", claim.get("source")):
        return False
    if claim["quantity"] == "runtime" and number.get("unit") != "s":
        return False
    for key, values in side.items():
        other = number.get(key)
        if other is None or pd.isna(other) or other == "":
            continue
        if not (str(other) in values.split("|") if not isinstance(other, str) else fit(key, values, other)):
            return False
    return True
