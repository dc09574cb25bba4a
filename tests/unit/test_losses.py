"""Where the time and the efficiency went, by planted delays: each is in its own part, and parts add
up.

The slow host in records: planted rows, and how often sound hosts are accused over made-up studies.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from ddlbench.analysis import losses, slow_nodes
from ddlbench.analysis.losses import PARTS, SPLIT
from ddlbench.analysis.record import Record
from ddlbench.analysis.slow_nodes import HARDWARE, LIKE, UNKNOWN, WANDERS, HostEpoch, compare_hosts
from ddlbench.core.columns import write_csv
from ddlbench.core.mllog import Event
from ddlbench.core.program import Program
from ddlbench.core.spec import of_program
from ddlbench.core.step_rows import STEP_COLUMNS, STEP_PARTS
from ddlbench.records import ours
from ddlbench.show.figures import efficiency_loss

from tests.builders.plans import run_spec
from tests.builders.records import RANKS, SPEC, fit_log, of_two_nodes, with_clocks, write_record
from tests.facts import missing
from tests.unit.drawings import OPTIONS, bars, draw, legend

EPOCHS, STEPS = 3, 20  # per epoch
VALIDATION_S, CHECKPOINT_S, END_S, LOADER_S = 1.5, 0.7, 0.2, 0.4
BASE = {
    "data_wait_s": 0.002,
    "forward_s": 0.02,
    "backward_s": 0.05,
    "communication_s": 0.01,
    "optimizer_s": 0.003,
}


def record(
    workers: int = 2,
    delays: dict[str, list[float]] | None = None,
    split: bool = True,
    **changes: Any,
) -> Record:
    """A run in which each rank's parts of a step take as long as in BASE, and longer by `delays`
    (by rank). Whoever is done first waits for gradients; an epoch has a start, an end, a validation
    and a checkpoint behind it.
    """
    spec = replace(
        SPEC, **{"workers": workers, "global_batch": 4 * workers, "epochs": EPOCHS} | changes
    )
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
                parts["communication_s"] + waits
                if split
                else parts["backward_s"] + parts["communication_s"] + waits
            )
            now += float(
                busy.max()
                + BASE["communication_s"]
                + max((delays or {}).get("communication_s", [0.0]))
            )
            for rank in range(workers):
                own = {name: float(values[rank]) for name, values in parts.items()}
                if not split:
                    own["communication_s"] = np.nan
                about = {
                    "epoch": epoch,
                    "step": epoch * STEPS + step,
                    "rank": rank,
                    "images": 4,
                    "lr": 0.1,
                }
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
    return {
        name: 1e3 * ((row[name] or 0.0) - (other[name] or 0.0)) / (EPOCHS * STEPS)
        for name in ("total_s", *PARTS)
    }


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


def test_what_a_program_does_between_its_steps_is_not_called_a_checkpoint() -> None:
    """It does not say its wait for data either, which is in its steps."""
    ours_parts, program = losses.parts(record()), record(split=False)
    unknown = dict.fromkeys(STEP_PARTS, "the program does not say it")
    said = Event("ddlbench_not_measured", unknown, {}, 0.0)
    spec = of_program(
        Program(name="mine", command="python train.py"),
        machine="local",
        device="cpu",
        workers=2,
        workers_per_node=2,
        global_batch=8,
    )
    last = program.last | {said.key: said}
    whole = program.steps["forward_s"] + program.steps["data_wait_s"]
    steps = program.steps.assign(forward_s=whole, data_wait_s=0.0)
    row = losses.parts(replace(program, spec=spec, last=last, steps=steps))
    assert row["input_s"] is row["validation_s"] is row["checkpoint_s"] is None
    pauses = (EPOCHS - 1) * (END_S + VALIDATION_S + CHECKPOINT_S)
    assert row["unexplained_s"] == pytest.approx(pauses, rel=0.02)
    assert sum(row[name] or 0.0 for name in PARTS) == pytest.approx(row["total_s"], abs=1e-12)
    assert ours_parts["checkpoint_s"] > 0


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
    longer = ms(
        losses.parts(record(delays={column: [one / 1e3 for one in delay_ms]})),
        losses.parts(record()),
    )
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
    others = {
        "status": "success",
        "compute_s": 9.0,
        "validation_s": 9.0,
        "images": 9,
    }  # of `runs`, by the same names
    runs = pd.DataFrame([one.spec.columns() | others for one in records])
    names = [column.name for column in losses.COLUMNS]
    return {
        "runs": runs,
        "losses": pd.DataFrame([losses.parts(one) for one in records], columns=names),
    }


def test_efficiency_and_what_took_it_away_add_up_to_one() -> None:
    base = [record(1, repeat=n) for n in (1, 2)]
    slow = [
        record(2, {"communication_s": [0.015, 0.015], "backward_s": [0.0, 0.03]}, repeat=n)
        for n in (1, 2)
    ]
    shown = tables(*base, *slow)
    fall = losses.waterfall(**shown)
    (row,) = fall.to_dict("records")
    assert (row["workers"], row["ref_workers"], row["repeats"]) == (2, 1, 2)
    totals = [losses.parts(one)["total_s"] for one in (base[0], slow[0])]
    assert row["efficiency"] == pytest.approx(
        totals[0] / totals[1]
    )  # twice the images in this time
    assert row["efficiency"] + sum(row[name] for name in PARTS) == pytest.approx(1, abs=1e-12)
    per_step = totals[1] / (EPOCHS * STEPS)
    assert row["transfer_s"] == pytest.approx(0.015 / per_step, rel=0.1)
    assert row["waiting_s"] == pytest.approx(0.03 / per_step, rel=0.1)
    # Epochs are as long in steps, and validations as long in time: nothing is lost there.
    assert row["validation_s"] == pytest.approx(0, abs=1e-4)


def test_what_cannot_be_split_is_one_part_on_both_sides() -> None:
    fall = losses.waterfall(
        **tables(record(1), record(2, {"communication_s": [0.015, 0.015]}, split=False))
    )
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
    base, better = (
        record(1),
        record(2, {"communication_s": [0.03, 0.03], "forward_s": [-0.01, -0.01]}),
    )
    shown = tables(base, better)
    shown["runs"]["framework"] = "ddp"
    figure = draw("efficiency-loss", shown)
    (axes,) = figure.axes
    (ends,) = bars(axes).values()
    assert max(ends) == pytest.approx(
        1 - min(0, *(p.get_x() + p.get_width() for p in axes.patches)), abs=1e-6
    )
    assert axes.get_xlim()[0] < 0  # compute got better
    assert {"efficiency", "transfer", "slower compute"} <= set(legend(figure))
    assert len(efficiency_loss.PARTS) == len(PARTS) + 1
    assert draw(
        "efficiency-loss", {name: table[:1] for name, table in shown.items()}, OPTIONS
    ).axes  # no bar at all


def study(
    hosts: int,
    runs: int,
    epochs: int,
    seed: int = 1,
    compute: dict[str, float] | None = None,
    stalls: float = 0.0,
    noise: float = 0.02,
) -> list[HostEpoch]:
    """Runs on all hosts: 0.2 s compute and 0.05 s data wait a step, with noise of each host in each
    run and epoch.

    `compute` makes hosts slower by these factors. With chance `stalls` one host, another each time,
    waits 0.2 s more.
    """
    chance = np.random.default_rng(seed)
    names = [f"node{number}" for number in range(hosts)]
    found = []
    for run in range(runs):
        level = np.exp(chance.normal(0, noise / 2, hosts))
        for epoch in range(epochs):
            own = 0.2 * level * np.exp(chance.normal(0, noise, hosts))
            wait = 0.05 * np.exp(chance.normal(0, 5 * noise, hosts))
            if chance.random() < stalls:
                wait[chance.integers(hosts)] += 0.2
            took = {
                name: float(own[n]) * (compute or {}).get(name, 1.0) for n, name in enumerate(names)
            }
            waits = dict(zip(names, wait.tolist(), strict=True))
            some = compare_hosts({"compute": took, "data_wait": waits})
            found += [HostEpoch(f"r{run}", "kind", float(run), epoch, of) for of in some]
    return found


def verdicts(entries: list[HostEpoch]) -> dict[tuple[str, str], str]:
    """Those that are not as the others."""
    rows = slow_nodes.rows(entries)
    return {
        (str(r["host"]), str(r["part"])): str(r["verdict"]) for r in rows if r["verdict"] != LIKE
    }


@pytest.mark.parametrize("hosts", [2, 4, 64])
@pytest.mark.parametrize("runs", [1, 2, 5])
def test_a_host_that_is_always_slow_says_hardware(hosts: int, runs: int) -> None:
    entries = study(hosts, runs, 4, compute={"node1": 1.3})
    assert verdicts(entries) == {("node1", "compute"): HARDWARE}
    row = slow_nodes.rows(entries)[0]
    assert row["ratio"] == pytest.approx(1 + 0.06 / 0.25, abs=0.03)
    assert row["excess_s"] == pytest.approx(0.06, abs=0.01)
    assert (row["runs"], row["epochs"]) == (runs, 4 * runs)
    assert 0.9 * 4 * runs <= float(str(row["slow_epochs"])) <= 4 * runs
    assert row["over"] == ("runs" if runs > 2 else "epochs")
    assert float(str(row["low"])) < float(str(row["ratio"])) < float(str(row["high"]))


def test_a_slow_host_that_changes_says_loader_or_file_system() -> None:
    found = verdicts(study(4, 3, 8, stalls=0.7))
    assert set(found.values()) == {WANDERS}
    assert {part for _, part in found} == {"data_wait"}
    assert len(found) == 4


def test_slow_hardware_beside_a_slow_file_system() -> None:
    found = verdicts(study(4, 3, 8, compute={"node2": 1.4}, stalls=0.7))
    assert found.pop(("node2", "compute")) == HARDWARE
    assert set(found.values()) == {WANDERS}


def test_one_epoch_of_one_run_is_not_enough() -> None:
    assert set(verdicts(study(4, 1, 1, compute={"node2": 1.5})).values()) == {UNKNOWN}


def test_a_host_against_its_own_best() -> None:
    """It became slower in the last of three runs, and so did all others: beside them nothing is to
    be seen.
    """
    entries = study(4, 3, 4, noise=0.001)
    late = [
        s._replace(means=s.means._replace(time_s=s.means.time_s * 1.5)) if s.run == "r2" else s
        for s in entries
    ]
    for row in slow_nodes.rows(late):
        assert row["verdict"] == LIKE
        assert row["over_own_best"] == pytest.approx(1.5, rel=0.02)
    assert all(row["over_own_best"] is None for row in slow_nodes.rows(study(4, 1, 4)))


@pytest.mark.more
def test_sound_hosts_are_hardly_ever_accused() -> None:
    """200 made-up studies of 2 to 16 hosts whose epochs scatter by 1 to 4 %: at most 5 % accuse
    anybody.
    """
    chance = random.Random(5)
    accused = 0
    for seed in range(200):
        noise = chance.choice(
            [0.01, 0.02, 0.04]
        )  # of compute; data wait scatters five times as much
        entries = study(
            chance.choice([2, 3, 4, 8, 16]),
            chance.randint(1, 4),
            chance.randint(2, 6),
            seed,
            noise=noise,
        )
        accused += any(verdict in (HARDWARE, WANDERS) for verdict in verdicts(entries).values())
    assert accused <= 10, accused


def test_slow_hosts_are_hardly_ever_missed() -> None:
    chance = random.Random(6)
    missed = 0
    for seed in range(100):
        entries = study(
            chance.choice([2, 4, 8]), chance.randint(1, 4), 4, seed, compute={"node0": 1.25}
        )
        missed += verdicts(entries).get(("node0", "compute")) != HARDWARE
    assert missed <= 5, missed


# Records


def planted(folder: Path, repeat: int = 1, measured: bool = True) -> Path:
    """A run of four epochs on node7 and node8, which computes three times as long."""

    def by_rank(first: float, second: float) -> Callable[[pd.DataFrame], np.ndarray[Any, Any]]:
        return lambda steps: np.where(steps["rank"] == 0, first, second)

    passes = {
        "forward_s": by_rank(0.1, 0.3),
        "backward_s": by_rank(0.2, 0.6),
        "optimizer_s": by_rank(0.01, 0.03),
    }
    waits = by_rank(0.62, 0.0) if measured else np.nan
    return of_two_nodes(folder, repeat=repeat, data_wait_s=0.01, communication_s=waits, **passes)


def test_records_name_the_slow_host(tmp_path: Path) -> None:
    for repeat in (1, 2, 3):
        planted(tmp_path, repeat)
    write_record(tmp_path, run_spec(workers=1, machine="here", global_batch=8))  # one host
    entries, runs, refused = slow_nodes.records("here", tmp_path)
    assert (runs, refused) == (3, [])
    rows = slow_nodes.rows(entries)
    assert (rows[0]["host"], rows[0]["part"], rows[0]["verdict"]) == ("node8", "compute", HARDWARE)
    assert rows[0]["ratio"] == pytest.approx((0.01 + 0.31 * 3) / (0.01 + 0.31))
    assert rows[0]["excess_s"] == pytest.approx(0.62)
    assert [row["verdict"] for row in rows[1:]] == [LIKE] * 3
    (said, *_) = slow_nodes.lines(rows)
    assert said.startswith("node8 compute")
    assert missing(said, "node8 compute", "3 runs", "rank 0", "hardware") == []
    write_csv(rows, slow_nodes.COLUMNS, tmp_path / "machines/here/nodes.csv")
    assert next(iter(pd.read_csv(tmp_path / "machines/here/nodes.csv")["host"])) == "node8"


def test_one_bad_device_of_four_is_not_averaged_away(tmp_path: Path) -> None:
    spec = run_spec(workers=8, global_batch=16, workers_per_node=4, machine="here", epochs=4)
    ranks = [RANKS[0] | {"host": f"node{rank // 4}", "local_rank": rank % 4} for rank in range(8)]
    record = write_record(tmp_path, spec, images=320, ranks=ranks)
    steps = pd.read_parquet(record / "steps.parquet")
    steps[[*STEP_PARTS]] = [0.01, 0.1, 0.2, 0.02, 0.01]
    steps.loc[steps["rank"] == 6, "backward_s"] *= 1.3
    steps = with_clocks(steps)
    steps.to_parquet(record / "steps.parquet")
    fit_log(record, steps)
    rows = slow_nodes.rows(slow_nodes.host_epochs(ours.record(record)))
    assert (rows[0]["host"], rows[0]["part"], rows[0]["local_rank"]) == ("node1", "compute", 2)
    assert rows[0]["verdict"] == HARDWARE
    assert "rank 2 there" in slow_nodes.lines(rows)[0]
    assert rows[0]["ratio"] == pytest.approx((0.32 + 0.06) / 0.32)


def test_where_waiting_is_not_measured_apart_compute_says_nothing(tmp_path: Path) -> None:
    record = planted(tmp_path, measured=False)
    assert {entry.means.part for entry in slow_nodes.host_epochs(ours.record(record))} == {
        "data_wait"
    }


def test_records_that_tell_nothing(tmp_path: Path) -> None:
    planted(tmp_path)
    assert slow_nodes.records("her", tmp_path) == (
        [],
        0,
        [],
    )  # another machine, whose name begins like this one's
    assert slow_nodes.records("nowhere", tmp_path) == ([], 0, [])
    assert slow_nodes.rows([]) == slow_nodes.lines([]) == []
    broken = planted(tmp_path, 2)
    (broken / "steps.parquet").write_bytes(b"no table")
    _, runs, refused = slow_nodes.records("here", tmp_path)
    assert (len(refused), runs) == (1, 1)
    assert "steps.parquet" in refused[0]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ddlbench_ranks", '[{"host": ["a"]}, {"host": {}}]'),
        ("ddlbench_ranks", "7"),
        ("ddlbench_spec", '["here"]'),
    ],
)
def test_a_log_that_makes_no_sense_is_refused_and_stops_nothing(
    tmp_path: Path, key: str, value: str
) -> None:
    planted(tmp_path)
    log = planted(tmp_path, 2) / "run.mllog"
    line = f':::MLLOG {{"key": "{key}", "value": {value}, "time_ms": 1, "metadata": null}}'
    log.write_text(log.read_text() + line + "\n:::MLLOG {}\n")
    _, runs, refused = slow_nodes.records("here", tmp_path)
    assert (runs, len(refused)) == (1, 1)
    assert "run.mllog" in refused[0]


def test_what_a_program_did_not_say_is_no_sign_of_a_sound_host(tmp_path: Path) -> None:
    """Its rows have zeros there: a slow node got lost among them."""
    record = ours.record(planted(tmp_path))
    assert [*slow_nodes.host_epochs(record)] != []
    unknown = dict.fromkeys(STEP_PARTS, "the program does not say it")
    said = Event("ddlbench_not_measured", unknown, {}, 0.0)
    of_program = replace(record, last=record.last | {said.key: said})
    assert [*slow_nodes.host_epochs(of_program)] == []


def test_ranks_of_one_host_are_no_comparison(tmp_path: Path) -> None:
    spec = run_spec(workers=2, global_batch=8, epochs=3)
    record = write_record(tmp_path, spec, ranks=[rank | {"host": "node7"} for rank in RANKS])
    assert list(slow_nodes.host_epochs(ours.record(record))) == []
