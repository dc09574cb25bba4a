"""What a setting of a run is in a comparison, and how people read it: stated beside each field of
`core/spec.py`.

`analysis/together.py` makes of these which runs belong together.
"""

from dataclasses import MISSING, dataclass, field
from typing import Any

from ddlbench.core.formatting import count_of

AXIS = "axis"  # what people compare: one framework with another
SIZE = "size"  # along which a series of runs grows
SETTING = "setting"  # that both sides of a comparison share
EXTENT = "extent"  # how much of the training was made
WATCHED = "watched"  # how the run was measured
REPEAT = "repeat"  # that moves the seed
FOLLOWS = "follows"  # from another setting: it says nothing new
WEAK, STRONG = (
    "weak",
    "strong",
)  # which batch stays along a series: that of a worker, or that of all


@dataclass(frozen=True)
class Role:
    """The role of a setting in a comparison, and its words.

    `follows` are settings that it differs with, of any role. `title` is the form of a value in
    headings and in legends of figures, `words` its form in sentences; with `noun` the values are
    counted. `null` is used where there is no value.
    """

    kind: str
    means: str = ""
    follows: tuple[str, ...] = ()
    title: str = "{}"
    words: str = "{}"
    noun: str = ""
    null: str = "none"

    def phrase(self, value: Any) -> str:
        """Say the value in a sentence."""
        whole = int(value) if isinstance(value, float) and value.is_integer() else value
        return count_of(whole, self.noun) if self.noun else self.words.format(whole)


def role(kind: str, means: str, *follows: str, default: Any = MISSING, **words: str) -> Any:
    """Make a field of a dataclass that has its Role as metadata."""
    return field(default=default, metadata={"role": Role(kind, means, follows, **words)})
