"""What sources claim, and which runs say something to it: `config/references/claims.csv`, one
`Claim` a line.

A claim is a quantity of one side (its `left`), compared with a value or with another side (`right`:
what differs from the left one). Sides are the conditions under which the source says it: settings
of runs, `model=resnet50;workers=4|8`, and those of OTHERS. Runs that do not meet them say nothing
to the claim. `claim_verdicts.py` decides. A claim without a quantity says in `why` why it cannot be
tested; of others `why` is what to know of the verdict, as where a source contradicts itself.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pandas as pd

from ddlbench.analysis import together
from ddlbench.analysis.recorded import STATE
from ddlbench.analysis.scaling import TIMES, compared_s, in_series
from ddlbench.core import registry, spec

ORDERINGS = (
    "ordering",
    "ordering-some",
)  # the left side is above the right one: everywhere; somewhere
RELATIONS = ("above", "below", "about", "factor", "factor-up-to", *ORDERINGS)
# Columns of runs by the quantity of a claim, and the units of those that are no plain numbers.
QUANTITIES = {
    "efficiency": "efficiency",  # of the whole training
    "speed-up": "speed_up",  # of the whole training
    "throughput": "throughput_images_per_s",
    "runtime": "full_train_s",
    "variation": "full_train_s",  # standard deviation over mean of repeats
    "top1": "top1_percent",
    "memory": "peak_bytes",
    "model-state": "state_bytes",  # parameters, gradients and optimizer state, as programs say it
    "cost": "node_hours",  # of the whole training, without interruptions
    "restart": "restart_s",  # of runs that were interrupted
    "network": "network_sent_bytes",
    "communication-share": "communication_percent",
    "computation-share": "computation_percent",
    "busy-cores": "cpu_cores",  # of a rank and its loader
}
UNITS = dict.fromkeys(("memory", "model-state", "network"), "bytes") | dict.fromkeys(
    ("runtime", "restart"), "s"
)
UNITS |= dict.fromkeys(("top1", "communication-share", "computation-share"), "%")
UNITS |= {"throughput": "images/s", "cost": "h"}
OTHERS = (
    "gpu",
    "ref_workers",
)  # conditions that are no settings: (a part of) the GPU's name; the workers of the base
INTERRUPTED = (
    "restart",
)  # quantities of runs that were killed on purpose; all others are of runs that were not
Key = tuple[tuple[bool, Any], ...]
Sides = tuple[pd.DataFrame, pd.DataFrame | None]
# Quantities that vary from run to run as another does, because both are made of the same times.
VARIES_AS = {"runtime": "throughput", "cost": "throughput", "speed-up": "efficiency"}
# Shares of kernel time are those of the last steps, however many epochs came before.
OF_LAST_STEPS = ("communication-share", "computation-share")


@dataclass(frozen=True)
class Claim:
    """A row of the file of claims; `value` is None where two sides are put in order."""

    id: str
    source: str
    place: str
    claim: str
    quantity: str
    left: dict[str, list[str]]
    right: dict[str, list[str]]
    relation: str
    value: float | None
    why: str


def read(path: Path) -> list[Claim]:
    """Read the claims of a file. Raises ValueError, which names file, line and what is allowed, for
    a row that is no claim.
    """
    with path.open(encoding="utf-8", newline="") as lines:
        rows = csv.DictReader(lines)
        names = [field.name for field in fields(Claim)]
        if list(rows.fieldnames or ()) != names:
            raise ValueError(
                f"{path}: has the columns {rows.fieldnames}; allowed: {', '.join(names)}"
            )
        claims = [_claim(f"{path}:{number}", row) for number, row in enumerate(rows, start=2)]
    twice = {claim.id for claim in claims if sum(other.id == claim.id for other in claims) > 1}
    if twice:
        raise ValueError(f"{path}: id {sorted(twice)[0]} appears twice")
    return claims


def _claim(where: str, row: Mapping[str, str]) -> Claim:
    if any(value is None for value in row.values()):
        raise ValueError(f"{where}: has too few fields")
    value = float(row["value"]) if row["value"] else None
    sides = {side: _side(f"{where}: {side}", row[side]) for side in ("left", "right")}
    if not row["quantity"]:
        if not row["why"]:
            raise ValueError(f"{where}: has neither a quantity nor a reason in `why`")
    elif row["quantity"] not in QUANTITIES:
        raise ValueError(
            f"{where}: quantity is {row['quantity']}; allowed: {', '.join(QUANTITIES)}"
        )
    elif row["relation"] not in RELATIONS:
        raise ValueError(f"{where}: relation is {row['relation']}; allowed: {', '.join(RELATIONS)}")
    elif (row["relation"] in ORDERINGS) != (value is None):
        raise ValueError(f"{where}: an ordering has no value, all other relations have one")
    elif (row["relation"] in (*ORDERINGS, "factor", "factor-up-to")) != bool(sides["right"]):
        raise ValueError(
            f"{where}: ordering and factor compare with a right-hand side, the others do not"
        )
    return Claim(**{**row, **sides, "value": value})  # type: ignore[arg-type]


def _side(where: str, text: str) -> dict[str, list[str]]:
    pairs = [part.partition("=") for part in text.split(";") if part]
    for name, _, values in pairs:
        if name not in (*spec.COLUMNS, *OTHERS) or not values:
            raise ValueError(
                f"{where}: {name}={values}; allowed: columns of runs, as model=resnet50;workers=4|8"
            )
    return {name: values.split("|") for name, _, values in pairs}


def quantities(runs: pd.DataFrame, kernels: pd.DataFrame) -> pd.DataFrame:
    """Return successful runs with all columns that QUANTITIES names; speed-up and efficiency are
    relative to their series' baseline.
    """
    table = together.successful(runs).merge(
        kernels[["run", "communication_percent", "computation_percent"]], on="run", how="left"
    )
    device, host = table["peak_device_memory_bytes"], table["peak_resident_bytes"]
    table = table.assign(top1_percent=100 * table["final_top1"], peak_bytes=device.fillna(host))
    parts = table[[column.name for column in STATE]].astype("float64")
    # Of our own runs the bytes of gradients are computed: no claim is judged by that. Programs say
    # what they hold.
    held = parts.sum(axis=1, skipna=False).where(table["loader"] == registry.OWN)
    table = table.assign(state_bytes=held)
    table = table.assign(node_hours=table["nodes"] * table["full_train_s"] / 3600)
    table = table.assign(speed_up=math.nan, efficiency=math.nan, ref_workers=0)
    timed = in_series(table[table[TIMES["run"]].notna() & ~together.was_killed(table)])
    timed = timed.assign(compared_s=compared_s(timed, "run"))
    for _, series in timed.groupby(list(together.SERIES), dropna=False):
        ref = series["workers"].min()
        base = series[series["workers"] == ref]
        # A repeat without a base of its own proves nothing: the base varies, too. Records of others
        # make no pairs.
        speed = series["repeat"].map(together.by_repeat(base, "compared_s")) / series["compared_s"]
        if not together.are_ours(series).all():
            speed = base["compared_s"].median() / series["compared_s"]
        # A base compared with itself shows nothing. A run in two series counts in the first one,
        # of weak scaling.
        beyond = series.index[
            (series["workers"] > ref) & (table.loc[series.index, "ref_workers"] == 0)
        ]
        table.loc[beyond, "ref_workers"] = ref
        table.loc[beyond, "speed_up"] = speed[beyond]
        table.loc[beyond, "efficiency"] = speed[beyond] * ref / series.loc[beyond, "workers"]
    # Only the columns that are needed, in one piece: rows are taken from it some thousand times.
    table = table.assign(records=table.get("records", "ours"))  # the repeats of others are no pairs
    names = [*spec.COLUMNS, *OTHERS, *QUANTITIES.values(), "records"]
    return table[list(dict.fromkeys(names))].copy()


@dataclass(frozen=True)
class Asked:
    """A claim with the runs that can test it: each cell is a group of runs, and the group it is
    compared with.

    `why` says why there is none.
    """

    claim: Claim
    sides: tuple[Sides, ...] = ()
    why: str = ""

    @property
    def pooled_with(self) -> tuple[str, bool]:
        """Return what cells must share so that their spreads can be pooled: what varies, and
        whether two sides are compared, whose ratio varies more than one side does.
        """
        quantity = self.claim.quantity
        return VARIES_AS.get(quantity, quantity), bool(self.claim.right)

    @property
    def column(self) -> str:
        """Return the column of runs that has the quantity."""
        return QUANTITIES[self.claim.quantity]


def ask(claim: Claim, runs: pd.DataFrame) -> Asked:
    """Find the runs that can test a claim."""
    if not claim.quantity:
        return Asked(claim, why=claim.why)
    runs = runs[together.was_killed(runs) == (claim.quantity in INTERRUPTED)]
    measured = runs[runs[QUANTITIES[claim.quantity]].notna()]
    left = _select(measured, claim.left)
    right = _select(measured, claim.left | claim.right) if claim.right else None
    if left.empty:
        return Asked(claim, why=_missing(measured, claim.left, claim.quantity))
    if right is not None and right.empty:
        return Asked(claim, why=_missing(measured, claim.left | claim.right, claim.quantity))
    sides = tuple(_sides(claim, left, right))
    return Asked(
        claim, sides, "" if sides else "no two runs differ in nothing but what the claim compares"
    )


def _meets(runs: pd.DataFrame, name: str, values: Iterable[str]) -> pd.Series[bool]:
    column = runs[name].astype(str)
    if name == "gpu":  # of which a source names the model, and a record more than that
        return column.str.contains("|".join(map(re.escape, values)))
    return column.isin(list(values))


def _select(runs: pd.DataFrame, side: Mapping[str, Iterable[str]]) -> pd.DataFrame:
    fits = pd.Series(True, index=runs.index)
    for name, values in side.items():
        fits &= _meets(runs, name, values)
    return runs[fits]


def _missing(runs: pd.DataFrame, side: Mapping[str, Iterable[str]], quantity: str) -> str:
    """Return the first condition that no run meets, of the runs that meet the conditions before it,
    and the values that these runs have instead.
    """
    if runs.empty:
        return f"no run has {quantity}"
    for name, values in side.items():
        have = ", ".join(sorted({str(value) for value in runs[name]}))
        runs = runs[_meets(runs, name, values)]
        if runs.empty:
            return (
                f"the claim needs {name} {' or '.join(values)}; runs here that meet its other"
                f" conditions have {have}"
            )
    raise AssertionError("nothing is missing")


def _sides(claim: Claim, left: pd.DataFrame, right: pd.DataFrame | None) -> Iterable[Sides]:
    """Yield each group of runs that differ only in their repeat, or each two such groups that the
    claim compares.
    """
    settings = together.SAME
    columns = ("run", "repeat", "machine", "device", "records", QUANTITIES[claim.quantity])
    compared = together.differing_with(*claim.right) | (
        {"epochs"} if claim.quantity in OF_LAST_STEPS else set()
    )
    if right is None:
        yield from ((ours, None) for ours in _groups(left, settings, columns).values())
        return
    shared = [place for place, name in enumerate(settings) if name not in compared]
    fitting: dict[Key, list[pd.DataFrame]] = {}
    for key, theirs in _groups(right, settings, columns).items():
        fitting.setdefault(tuple(key[place] for place in shared), []).append(theirs)
    for key, ours in _groups(left, settings, columns).items():
        yield from (
            (ours, theirs) for theirs in fitting.get(tuple(key[place] for place in shared), ())
        )


def _groups(
    runs: pd.DataFrame, names: Sequence[str], kept: Sequence[str]
) -> dict[Key, pd.DataFrame]:
    """Group rows that have equal values in these columns, sorted by these values, with the columns
    that are `kept`; null equals null, and comes last.

    groupby does the same, but takes long for fifty columns.
    """
    columns = [
        [
            (null, 0 if null else value)
            for value, null in zip(runs[name].tolist(), runs[name].isna(), strict=True)
        ]
        for name in names
    ]
    rows: dict[Key, list[int]] = {}
    for place, key in enumerate(zip(*columns, strict=True)):
        rows.setdefault(key, []).append(place)
    few = runs[list(kept)]
    return {key: few.iloc[rows[key]] for key in sorted(rows)}
