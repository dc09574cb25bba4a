"""A source gives one number for one thing.

Two sections that print two numbers for the same runs leave readers to choose. Numbers said to be about as large may
differ by a tenth.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import RELATIONS, contradict, pairs

SEVERITY = "error"
NEEDS = ("numbers.quantity", "numbers.value", "numbers.workers")
WHAT_TO_DO = "ask the authors, or draw neither"
SOURCE = "Aach et al. 2023: the native loader at 512 GPUs has 'below 0.24' in one section and 0.45 in another"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each pair of numbers that cannot both hold."""
    numbers = material["numbers"]
    for quantity in numbers["quantity"].unique():
        for one, other in pairs(numbers, str(quantity), str(quantity)):
            if contradict(one, other):
                said = [f"{RELATIONS[row['relation']]}{row['value']:g}" for row in (one, other)]
                yield Finding((one["row"], other["row"]), f"{quantity} is {said[0]}, and {said[1]}")
