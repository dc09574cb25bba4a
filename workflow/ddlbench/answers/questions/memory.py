"""How much memory: the largest batch of a worker that fits, and what takes the least; of memory of
devices alone.
"""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import median

import pandas as pd

from ddlbench.analysis import over_settings
from ddlbench.analysis.over_settings import Block
from ddlbench.analysis.together import by_repeat
from ddlbench.answers import Answer, Candidate, Certainty, Choice, Fact, Given, Row, ratio_of
from ddlbench.answers.questions import _series

PLACE = 90
DECIDES: tuple[str, ...] = ()
MORE = 1.1  # times as much as another takes is worth a sentence
GIB = 2**30


def answer(given: Given, choice: Choice) -> Answer | None:
    """Return the side that takes the least memory of a device, where another takes significantly
    more, by a tenth; and the largest batch of a worker, or the largest model, that fitted.

    None where no memory of a device was measured: what a process holds on a CPU is mostly what it
    has imported.
    """
    measured = given.with_real_data
    peak = measured["peak_device_memory_bytes"].astype("float64") / GIB
    held = measured.assign(peak=peak)[peak > 0]
    if held.empty:
        return None
    axis = "framework" if held["framework"].nunique() > 1 else "loader"
    for same in _series.with_most_values(held, axis, ("workers", "global_batch", "schedule"))[:1]:
        parts = {str(name): part for name, part in same.groupby(axis)}
        cells = {
            name: {n: math.log(v) for n, v in by_repeat(part, "peak").items()}
            for name, part in parts.items()
        }
        least, *others = sorted(cells, key=lambda name: median(cells[name].values()))
        named = {name: _side(axis, name) for name in cells}
        block = Block("memory", cells)
        seen = {name: over_settings.compare([block], name, least, len(others)) for name in others}
        overs = {name: ratio_of(seen[name], named[name], named[least]) for name in others}
        more = [name for name, over in overs.items() if over.low is not None and over.low > MORE]
        single = [name for name, over in overs.items() if over.low is None and over.middle > MORE]
        if not more and not single:
            return None
        good = [name for name in (least, *others) if name not in (*more, *single)]
        rows = [
            _series.row(given, named[name], parts[name], "peak", name in good)
            for name in (least, *others)
        ]
        where = _series.candidate(same.iloc[0], "model", "workers", "batch")
        facts = [
            Fact(
                "least",
                {
                    "where": where,
                    "middle": rows[0].middle,
                    "low": rows[0].low,
                    "high": rows[0].high,
                    "n": rows[0].n,
                    "more": tuple(overs[name] for name in (*more, *single)),
                },
            )
        ]
        return Answer(
            question="memory",
            rule="least",
            certainty=Certainty.SURE if not single else Certainty.FEW,
            taken=named[least],
            among=tuple(named.values()),
            as_good=tuple(named[name] for name in good if name != least),
            over=overs[(more or single)[0]],
            measure="memory",
            unit="GiB",
            rows=tuple(rows),
            why=(*facts, *_fits(held, axis)),
            runs=tuple(same["run"].astype(str)),
        )
    return None


def _side(axis: str, name: str) -> Candidate:
    return Candidate(framework=name) if axis == "framework" else Candidate(loader=name)


def _fits(held: pd.DataFrame, axis: str) -> list[Fact]:
    """Return the largest batch of a worker that fitted, by side, with the largest model that was
    trained.
    """
    share = (held["global_batch"].astype("float64") / held["workers"]).round()
    rows: list[Row] = []
    for (name, model), part in held.assign(share=share).groupby([axis, "model"]):
        if part["share"].isna().all():
            continue
        best = part.sort_values("share").iloc[-1]
        candidate = replace(_side(axis, str(name)), model=str(model), batch=int(best["share"]))
        rows.append(Row(candidate, float(best["peak"])))
    several = (
        held.groupby("model")["global_batch"].nunique().max() > 1 or held["model"].nunique() > 1
    )
    return [Fact("fits", {"rows": tuple(rows)})] if rows and several else []
