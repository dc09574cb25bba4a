"""What is asked: `what_if` of the configuration as a list of changes, each tried alone, and worker counts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ddlbench.core import registry
from ddlbench.settings.config import ConfigError, one_of
from ddlbench.settings.own_models import is_own

AS_IT_IS = "as it is"
BANDWIDTH, NODE, BATCH, MODEL, PRECISION = "bandwidth", "workers_per_node", "batch_per_worker", "model", "precision"
# Keys of `what_if` in the configuration, with how legends and tables say a value.
KINDS = {
    BANDWIDTH: "{:g} x bandwidth between nodes",
    NODE: "{} workers per node",
    BATCH: "batch {} per worker",
    MODEL: "{}",
    PRECISION: "{}",
}
# Asked if nothing is: what every series can be asked.
DEFAULT: Mapping[str, Any] = {BANDWIDTH: [0.5, 2]}
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
DOUBLINGS = 3  # beyond the largest measured count, if no counts are asked
MOST_WORKERS = 100_000


@dataclass(frozen=True)
class Change:
    """One thing that is different; `value` is in the words of the configuration, None for `AS_IT_IS`."""

    kind: str = AS_IT_IS
    value: Any = None

    @property
    def name(self) -> str:
        """As legends and tables say it."""
        return KINDS[self.kind].format(self.value) if self.kind in KINDS else AS_IT_IS


def asked(what_if: Mapping[str, Any] | None) -> tuple[list[Change], list[int]]:
    """(changes, the first being none; worker counts, none for the default ones), of a checked configuration.

    Raises ConfigError if a model or a precision is not known.
    """
    given = dict(what_if or {})
    workers = _listed(given.pop("workers", None))
    given = {kind: value for kind, value in given.items() if value is not None}
    given = given or ({} if workers else dict(DEFAULT))
    made = [Change()]
    for kind in KINDS:
        made += [Change(kind, value) for value in dict.fromkeys(_listed(given.get(kind)))]
    allowed = {MODEL: registry.models(), PRECISION: PRECISIONS}
    for change in made:
        known = allowed.get(change.kind)
        if known is not None and change.value not in known and not is_own(str(change.value)):
            where = f"config/config.yaml: what_if.{change.kind}"
            raise ConfigError(f"{where}: {change.value}: unknown; {one_of(known, change.value)}")
    return made, sorted(set(workers))


def _listed(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]
