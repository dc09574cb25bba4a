"""Snakemake 9: a job is stale if the text of a param changed, whatever changed in it: there is no
word for params that mean the same.

Of a run's settings some are used by some runs only: a key of one schedule is no reason to train the
others again.

Upstream (snakemake/snakemake): `params:` could take a function that says whether two values are
alike, as `ensure` does for outputs; `PersistenceBase.params_changed` would ask it.
"""

import ast
from collections.abc import Callable, Collection
from typing import Any

from ddlbench.patches import only_for, private

MINE = ("snakemake", ("9",), "snakemake_params")


def apply(rules: Collection[str], alike: Callable[[str, str], bool]) -> None:
    """Make Snakemake treat params of these rules as unchanged where the texts before and now are
    `alike`. Raises ReleaseError.
    """
    from snakemake import persistence

    only_for(*MINE)
    base, none = (
        private(persistence, name, *MINE) for name in ("PersistenceBase", "NO_PARAMS_CHANGE")
    )
    compare = private(base, "params_changed", *MINE)
    compare = getattr(compare, "patched", compare)

    def params_changed(self: Any, job: Any, file: Any = None) -> Any:
        changes = compare(self, job, file)
        if not changes or job.rule.name not in rules:
            return changes
        before, now = (
            [ast.literal_eval(text) for text in texts]
            for texts in (changes.only_old, changes.only_new)
        )
        texts_only = before and now and all(isinstance(value, str) for value in (*before, *now))
        return (
            none
            if texts_only and all(alike(old, new) for old in before for new in now)
            else changes
        )

    params_changed.patched = compare  # type: ignore[attr-defined]
    base.params_changed = params_changed
