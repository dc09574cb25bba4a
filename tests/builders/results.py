"""Made-up studies whose truth is known, and what the first screen answers of them."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from ddlbench.analysis import scaling, together
from ddlbench.analysis.price import FREE, Tariff
from ddlbench.analysis.tables import frame
from ddlbench.answers import Answer, Goal, choose
from ddlbench.answers.choose import First
from ddlbench.core.registry import OWN
from ddlbench.plan.values import Row

from tests.builders.tables import row

NOISE = (0.0, 0.01, -0.01)
Rows = list[dict[str, object]]
LATER = (
    "run_s",
    "nodes",
    "full_energy_j",
    "full_train_s",
    "peak_device_memory_bytes",
    "status",
    "interrupt_steps",
)


def ran(
    rate: float, noise: tuple[float, ...] = NOISE, top1: float = 0.75, **changes: object
) -> Rows:
    """Repeats of a run at this rate, each of a minute on two workers; their top-1 varies by a tenth
    of the noise.
    """
    given = {"workers": 2, "workers_per_node": 4, "run_s": 60.0} | changes
    return [
        row(
            rate * (1 + by),
            top1=top1 + by / 10,
            repeat=n,
            **{k: v for k, v in given.items() if k not in LATER},
        )
        | {name: given[name] for name in LATER if name in given}
        for n, by in enumerate(noise, start=1)
    ]


def ran_program(rate: float, noise: tuple[float, ...] = NOISE, **changes: object) -> Rows:
    """Repeats of a user's own program, of whose steps only the time of the whole is known."""
    rows = ran(rate, noise, **{"model": "wildfire", "framework": "wildfire"} | changes)
    own = dict.fromkeys(("loader", "dataset", "schedule", "recipe"), OWN)
    return [one | own | {"form": None, "final_top1": None, "data_wait_s": None} for one in rows]


def reached(rows: Rows, times_s: dict[int, list[float]], target: float = 0.7) -> pd.DataFrame:
    """What a figure with this target has of these runs: the times of so many repeats, by workers."""
    counted = scaling.in_series(frame("runs", rows))
    found = []
    for _, part in counted.groupby([*together.SERIES, "workers"], dropna=False):
        each = times_s.get(int(part["workers"].iloc[0]), [])
        if each:
            low, high = (min(each), max(each)) if len(each) > 1 else (None, None)
            values = {"reached_s": sorted(each)[len(each) // 2], "repeats": len(each)}
            values |= {"reached_s_low": low, "reached_s_high": high, "target": target}
            runs = part["run"].tolist()[: len(each)]
            values |= {"each": json.dumps(each), "runs": json.dumps(runs)}
            found.append({**part.iloc[0], **values})
    return pd.DataFrame(found)


def whole_steps(rows: Rows) -> pd.DataFrame:
    """Where the time of these runs went: into whole steps, which grow with the workers."""
    whole = {"input_s": 0.0, "waiting_s": None, "transfer_s": None, "compute_s": None}
    return pd.DataFrame(
        {"run": one["run"], "images": 1200, "together_s": float(str(one["workers"]))} | whole
        for one in rows
    )


def noisy(rng: np.random.Generator, repeats: int, spread: float = 0.02) -> tuple[float, ...]:
    """As many repeats that vary by so much."""
    return tuple(float(by) for by in np.exp(rng.normal(0, spread, repeats)) - 1)


def first(
    rows: Rows,
    audit: tuple[Mapping[str, str], ...] = (),
    *,
    tariff: Tariff = FREE,
    goal: str = Goal.BALANCED,
    ours: bool = True,
    sample: str = "images",
    **more: pd.DataFrame,
) -> First:
    """The first screen of these runs."""
    tables = {
        "runs": frame("runs", rows),
        "losses": pd.DataFrame(),
        "reached": pd.DataFrame(),
    } | more
    return choose.first(tables, audit, tariff=tariff, goal=goal, ours=ours, sample=sample)


def by_question(found: First) -> dict[str, Answer]:
    """Its answers by question."""
    return {answer.question: answer for answer in found.answers}


def only(rows: Rows, question: str, **more: object) -> Answer:
    """The answer to one question."""
    return by_question(first(rows, **more))[question]  # type: ignore[arg-type]


def bill_row(**known: Any) -> Row:
    """A row of the bill of which nothing else is known."""
    return Row(**dict.fromkeys(Row.__dataclass_fields__) | {"rule": "train"} | known)


STUDIES: dict[str, Rows] = {
    "sides": [
        *ran(900.0, top1=0.65, framework="powersgd"),
        *(one for n in (1, 2, 4) for one in ran(500.0 * n, framework="ddp", workers=n)),
        *(one for n in (1, 2, 4) for one in ran(450.0 * n**0.9, framework="horovod", workers=n)),
        *(one for loader in ("native", "synthetic") for one in ran(400.0, loader=loader)),
    ],
    "learning": [
        one
        for schedule, tops in {"step": (0.77, 0.768, 0.4), "cosine": (0.76, 0.5, 0.51)}.items()
        for size, top in zip((256, 4096, 65536), tops, strict=True)
        for one in ran(100.0, top1=top, schedule=schedule, global_batch=size)
    ],
    "costs": [
        one
        | {
            "peak_device_memory_bytes": 2.0**33 if framework == "ddp" else 2.0**32,
            "full_energy_j": 1e6 * n,
        }
        for framework in ("ddp", "zero-1")
        for n in (1, 2)
        for one in ran(100.0 * n, framework=framework, workers=n)
    ],
}
