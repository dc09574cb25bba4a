"""Which runs belong together, said once: for tables, figures, the audit, the plan and predictions.

Everything follows from the role that stands beside each field of `core/spec.py`. A new field needs
its role there, and nothing here: what compares runs looks at it from then on. Elsewhere no list of
settings is kept, and no status compared; `tests/unit/test_together.py` forbids it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ddlbench.core.program import IMAGES
from ddlbench.core.registry import OWN
from ddlbench.core.roles import AXIS, EXTENT, REPEAT, SETTING, SIZE, WATCHED, Role
from ddlbench.core.spec import COLUMNS, ROLES, RunSpec

if TYPE_CHECKING:
    import pandas as pd

# The order in which people read settings; those of a recipe's keys come after them.
_FIRST = (
    *(
        "machine",
        "dataset",
        "model",
        "recipe",
        "schedule",
        "framework",
        "options",
        "loader",
        "form",
        "workers",
    ),
    *(
        "global_batch",
        "profiled",
        "timed",
        "epochs",
        "of_epochs",
        "bandwidth_mbit",
        "interrupt_steps",
    ),
)
_FIELDS = tuple(name for name in (*RunSpec.__dataclass_fields__, "settings") if name in ROLES)
_ORDER = (*_FIRST, *(name for name in _FIELDS if name not in _FIRST))


def with_roles(
    *kinds: str, without: Iterable[str] = (), first: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return a run's own settings with these roles, as people read them: `first` ones, then the
    others.
    """
    names = [name for name in _ORDER if ROLES[name].kind in kinds and name not in {*without}]
    return (*first, *(name for name in names if name not in first))


# What both sides of a comparison share, and what repeats of one run have in common besides.
COMPARED = with_roles(SETTING)
CELL = with_roles(AXIS, SIZE, EXTENT, WATCHED)
# What runs of one series over workers share; their batch is a key of its own kind
# (`scaling.in_series`).
_ALONG = {"workers", "global_batch", "workers_per_node"}
KEYS = tuple(f for f in _FIELDS if f not in _ALONG and ROLES[f].kind not in (REPEAT, WATCHED))
BATCH = ("batch_per_worker", "global_batch")
SERIES = (*KEYS, *BATCH)
# What runs of the same settings share, the keys of their recipe among it.
SAME = tuple(
    name for name in COLUMNS if name in ROLES and ROLES[name].kind in (AXIS, SIZE, SETTING, EXTENT)
)


def differing_with(*names: str) -> set[str]:
    """Return these settings, and those that differ because they do: the form with the loader, the
    batch with the workers.
    """
    return {
        *names,
        *(name for name, role in ROLES.items() if not {*names}.isdisjoint(role.follows)),
    }


def successful(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of runs, jobs or logs that ended well."""
    return runs[ended_well(runs)]


def ended_well(runs: pd.DataFrame) -> pd.Series[bool]:
    """Return which of these rows ended well."""
    return runs["status"] == "success"


def was_killed(runs: pd.DataFrame) -> pd.Series[bool]:
    """Return which runs were killed on purpose, to measure what that costs."""
    return runs["interrupt_steps"].notna()


def usable(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs that can be compared: they ended well, and none was killed on purpose."""
    runs = successful(runs)
    return runs[~was_killed(runs)]


def timed(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the usable runs with a rate: those that had the machine to themselves."""
    runs = usable(runs)
    return runs[runs["throughput_images_per_s"].notna()]


def are_ours(runs: pd.DataFrame) -> pd.Series[bool]:
    """Return which runs are ours, and not of records that others made."""
    import pandas as pd

    return (
        runs["records"].fillna("ours") == "ours"
        if "records" in runs
        else pd.Series(True, runs.index)
    )


def by_repeat(runs: pd.DataFrame, measure: str) -> dict[int | str, float]:
    """Return a measure of runs of the same settings, by the number of their repeat: pairs are made
    of these.

    Records of others were made on their own day each, and the numbers in their files' names say
    nothing: theirs go by the name of the run, which makes no pair.
    """
    values = [float(value) for value in runs[measure]]
    if are_ours(runs).all():
        return dict(zip(map(int, runs["repeat"]), values, strict=True))
    return dict(zip(map(str, runs["run"]), values, strict=True))


def rows_like(
    table: pd.DataFrame, row: Mapping[Any, Any] | pd.Series[Any], names: Iterable[str]
) -> pd.DataFrame:
    """Return the rows that have in these columns what `row` has there; null equals null."""
    import pandas as pd

    for name in names:
        if table.empty:
            break
        table = table[table[name].isna() if pd.isna(row[name]) else table[name] == row[name]]
    return table


def sample(runs: pd.DataFrame) -> str:
    """Return what steps of these runs count: `images`, a program's `tokens`, or `samples` where
    they differ.
    """
    names = {*runs["sample"].dropna()} if "sample" in runs else {IMAGES}
    return names.pop() if len(names) == 1 else "samples" if names else IMAGES


def of_programs(runs: pd.DataFrame) -> pd.Series[bool]:
    """Return which runs are of a user's own program; each trains on as many samples as it likes."""
    import pandas as pd

    return runs["dataset"] == OWN if "dataset" in runs else pd.Series(False, runs.index)


def title(name: str, value: Any) -> str:
    """Format a setting's value for headings, legends and names of series."""
    import pandas as pd

    role = ROLES.get(name, _PLAIN)
    return role.null if pd.isna(value) else role.title.format(value)


def words(names: Iterable[str], values: Iterable[Any]) -> str:
    """Describe what runs have in common: `lenet, batch 64, 2 workers`.

    What is null, empty or a program's own is left out.
    """
    import pandas as pd

    pairs = zip(names, values, strict=True)
    return ", ".join(
        ROLES.get(name, _PLAIN).phrase(v) for name, v in pairs if not (pd.isna(v) or v in ("", OWN))
    )


_PLAIN = Role(SETTING)
