"""Where the time and the efficiency went, by planted delays: each is in its own part, and parts add up."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from ddlbench.analysis import losses
from ddlbench.analysis.losses import PARTS, SPLIT
from ddlbench.analysis.record import Record
from ddlbench.core.record import STEP_COLUMNS, Event
from ddlbench.show.figures import efficiency_loss

from tests.unit.drawings import OPTIONS, bars, draw, legend
from tests.unit.records import SPEC

EPOCHS, STEPS = 3, 20  # per epoch
VALIDATION_S, CHECKPOINT_S, END_S, LOADER_S = 1.5, 0.7, 0.2, 0.4
BASE = {"data_wait_s": 0.002, "forward_s": 0.02, "backward_s": 0.05, "communication_s": 0.01, "optimizer_s": 0.003}


def record(
    workers: int = 2, delays: dict[str, list[float]] | None = None, split: bool = True, **changes: Any
) -> Record:
    """A run in which each rank's parts of a step take as long as in BASE, and longer by `delays` (by rank). Whoever is
    done first waits for gradients; an epoch has a start, an end, a validation and a checkpoint behind it."""
    spec = replace(SPEC, **{"workers": workers, "global_batch": 4 * workers, "epochs": EPOCHS} | changes)
    rng, rows, events = np.random.default_rng(1), [], []

    def event(key: str, at: float, **about: Any) -> None:
        events.append(Event(key, None, about, at))

    now = 0.05
    for epoch in range(EPOCHS):
        event("epoch_start", now, epoch_num=epoch + 1)
        for step in range(STEPS):
            parts = {name: np.full(workers, took) for name, took in BASE.items()}
            for name, longer in (delays or {}).items():
                parts[name] = parts[name] + np.array(longer)
            parts["forward_s"] = parts["forward_s"] * np.exp(rng.normal(0, 0.02, workers))
            parts["data_wait_s"] += LOADER_S if step == 0 else 0.0
            busy = sum(parts[name] for name in BASE if name != "communication_s")
            waits = busy.max() - busy
            parts["communication_s" if split else "backward_s"] = (
                parts["communication_s"] + waits if split else parts["backward_s"] + parts["communication_s"] + waits
            )
            now += float(busy.max() + BASE["communication_s"] + max((delays or {}).get("communication_s", [0.0])))
            for rank in range(workers):
                own = {name: float(values[rank]) for name, values in parts.items()}
                if not split:
                    own["communication_s"] = np.nan
                about = {"epoch": epoch, "step": epoch * STEPS + step, "rank": rank, "images": 4, "lr": 0.1}
                rows.append(about | own | {"loss": 1.0, "end_s": now})
        now += END_S
        event("eval_start", now, epoch_num=epoch + 1)
        now += VALIDATION_S
        event("eval_stop", now, epoch_num=epoch + 1)
        now += CHECKPOINT_S if epoch + 1 < EPOCHS else 0.0
    events.append(Event("ddlbench_elapsed_s", now, {}, now))
    steps = pd.DataFrame(rows).astype(STEP_COLUMNS)
    last = {one.key: one for one in events}
    return Record(Path("x"), spec, events, last, STEPS * spec.global_batch, True, steps)


def ms(row: dict[str, Any], other: dict[str, Any]) -> dict[str, float]:
    """How much longer each part took, per step [ms]."""
    return {name: 1e3 * ((row[name] or 0.0) - (other[name] or 0.0)) / (EPOCHS * STEPS) for name in ("total_s", *PARTS)}


def test_the_parts_of_a_run() -> None:
    row = losses.parts(record())
    inner = EPOCHS * STEPS
    assert row["input_s"] == pytest.approx((inner - EPOCHS) * BASE["data_wait_s"], rel=1e-4)
    assert row["transfer_s"] == pytest.approx(inner * BASE["communication_s"], rel=1e-4)
    assert row["compute_s"] == pytest.approx(inner * 0.073, rel=0.02)
    assert row["validation_s"] == pytest.approx(EPOCHS * VALIDATION_S, rel=1e-4)
    assert row["checkpoint_s"] == pytest.approx((EPOCHS - 1) * CHECKPOINT_S, rel=1e-4)
    starts = EPOCHS * (LOADER_S + BASE["data_wait_s"]) + 0.05
    assert row["epochs_s"] == pytest.approx(EPOCHS * END_S + starts, rel=1e-4)
    assert row["together_s"] is None
    assert abs(row["unexplained_s"]) < 1e-3
    assert sum(row[name] or 0.0 for name in PARTS) == pytest.approx(row["total_s"], abs=1e-12)


@pytest.mark.parametrize(
    ("part", "column", "delay_ms"),
    [
        ("input_s", "data_wait_s", [20, 20]),  # in the loader of each rank
        ("waiting_s", "backward_s", [0, 30]),  # in one rank's backward pass
        ("waiting_s", "data_wait_s", [25, 0]),  # in one rank's loader
        ("transfer_s", "communication_s", [15, 15]),  # in the all-reduce
        ("compute_s", "backward_s", [10, 10]),
    ],
)
def test_a_planted_delay_is_in_its_part(part: str, column: str, delay_ms: list[float]) -> None:
    longer = ms(losses.parts(record(delays={column: [one / 1e3 for one in delay_ms]})), losses.parts(record()))
    delay = max(delay_ms)
    # The first step of an epoch waits for its loader with the epoch, not with the input.
    expected = delay * (1 - 1 / STEPS if part == "input_s" else 1)
    assert longer[part] == pytest.approx(expected, rel=0.1)
    others = [name for name in PARTS if name != part]
    assert max(abs(longer[name]) for name in others) < 0.1 * delay
    assert sum(longer[name] for name in PARTS) == pytest.approx(longer["total_s"])


def test_one_slow_rank_of_four_costs_what_the_middle_one_waits() -> None:
    delays = {"backward_s": [0, 0, 0, 0.03]}
    longer = ms(losses.parts(record(4, delays)), losses.parts(record(4)))
    assert longer["waiting_s"] == pytest.approx(30, rel=0.1)
    assert abs(longer["compute_s"]) < 1


def tables(*records: Record) -> dict[str, pd.DataFrame]:
    others = {"status": "success", "compute_s": 9.0, "validation_s": 9.0, "images": 9}  # of `runs`, by the same names
    runs = pd.DataFrame([one.spec.columns() | others for one in records])
    names = [column.name for column in losses.COLUMNS]
    return {"runs": runs, "losses": pd.DataFrame([losses.parts(one) for one in records], columns=names)}


def test_efficiency_and_what_took_it_away_add_up_to_one() -> None:
    base = [record(1, repeat=n) for n in (1, 2)]
    slow = [record(2, {"communication_s": [0.015, 0.015], "backward_s": [0.0, 0.03]}, repeat=n) for n in (1, 2)]
    shown = tables(*base, *slow)
    fall = losses.waterfall(**shown)
    (row,) = fall.to_dict("records")
    assert (row["workers"], row["ref_workers"], row["repeats"]) == (2, 1, 2)
    totals = [losses.parts(one)["total_s"] for one in (base[0], slow[0])]
    assert row["efficiency"] == pytest.approx(totals[0] / totals[1])  # twice the images in this time
    assert row["efficiency"] + sum(row[name] for name in PARTS) == pytest.approx(1, abs=1e-12)
    per_step = totals[1] / (EPOCHS * STEPS)
    assert row["transfer_s"] == pytest.approx(0.015 / per_step, rel=0.1)
    assert row["waiting_s"] == pytest.approx(0.03 / per_step, rel=0.1)
    # Epochs are as long in steps, and validations as long in time: nothing is lost there.
    assert row["validation_s"] == pytest.approx(0, abs=1e-4)


def test_what_cannot_be_split_is_one_part_on_both_sides() -> None:
    fall = losses.waterfall(**tables(record(1), record(2, {"communication_s": [0.015, 0.015]}, split=False)))
    (row,) = fall.to_dict("records")
    assert [row[name] for name in SPLIT] == [0, 0, 0]
    assert row["together_s"] > 0.05
    assert row["efficiency"] + sum(row[name] for name in PARTS) == pytest.approx(1, abs=1e-12)


def test_a_record_without_marks_of_time_is_unexplained_not_refused(tmp_path: Path) -> None:
    one = record()
    steps = one.steps.assign(end_s=0.0)
    row = losses.parts(replace(one, steps=steps))
    assert sum(row[name] or 0.0 for name in PARTS) == pytest.approx(row["total_s"])


def test_the_figure() -> None:
    base, better = record(1), record(2, {"communication_s": [0.03, 0.03], "forward_s": [-0.01, -0.01]})
    shown = tables(base, better)
    shown["runs"]["framework"] = "ddp"
    figure = draw("efficiency-loss", shown)
    (axes,) = figure.axes
    (ends,) = bars(axes).values()
    assert max(ends) == pytest.approx(1 - min(0, *(p.get_x() + p.get_width() for p in axes.patches)), abs=1e-6)
    assert axes.get_xlim()[0] < 0  # compute got better
    assert {"efficiency", "transfer", "compute that got slow"} <= set(legend(figure))
    assert len(efficiency_loss.PARTS) == len(PARTS) + 1
    assert draw("efficiency-loss", {name: table[:1] for name, table in shown.items()}, OPTIONS).axes  # no bar at all
