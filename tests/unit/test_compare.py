"""A new software stage beside the old one: planted changes are named with their part and host, and
noise is not.
"""

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from ddlbench.analysis import before_after
from ddlbench.analysis.before_after import ALL, Run
from ddlbench.core import layout
from ddlbench.core.columns import write_csv
from ddlbench.records import ours
from ddlbench.settings.config import ConfigError
from ddlbench.show.page import compared

from tests.builders.records import SPEC, edit_log, of_two_nodes, write_record
from tests.facts import missing, refuses
from tests.unit.programs import made, script, spec

STEP = {
    "data_wait_s": 0.02,
    "compute_s": 0.2,
    "communication_transfer_s": 0.03,
    "communication_wait_s": 0.01,
}


def runs(seed: int, repeats: int = 5, noise: float = 0.02, **factors: float) -> list[Run]:
    """Runs on two hosts whose parts take STEP's seconds times `factors`, with noise; 100 steps an
    epoch.
    """
    chance = random.Random(seed)
    found = []
    for repeat in range(1, repeats + 1):
        parts = {
            name: s * factors.get(name, 1.0) * np.exp(chance.gauss(0, noise))
            for name, s in STEP.items()
        }
        whole = 100 * sum(parts.values()) * np.exp(chance.gauss(0, noise))
        of_host = {
            host: {
                name: parts[name] * np.exp(chance.gauss(0, noise)) for name in before_after.OF_HOST
            }
            for host in ("node1", "node2")
        }
        of_host["node2"]["compute_s"] *= factors.get("node2", 1.0)
        found.append(
            Run(
                "mnist",
                repeat,
                {"epoch_s": whole, **parts},
                of_host,
                {"torch": "2.12", "python": "3.11"},
            )
        )
    return found


def verdict(rows: list[before_after.Row], quantity: str = "epoch_s", host: str = ALL) -> str:
    (row,) = [row for row in rows if (row["quantity"], row["host"]) == (quantity, host)]
    return str(row["verdict"])


def test_a_faster_part_is_named() -> None:
    rows = before_after.rows(runs(1), runs(2, compute_s=0.7))
    assert verdict(rows) == verdict(rows, "compute_s") == "faster"
    assert verdict(rows, "data_wait_s") == "cannot tell"
    said = before_after.lines(rows)
    assert said[0].startswith("mnist: faster, ") and missing(said[0], "epoch") == []
    named = [line.split(":")[0].strip() for line in said[1:]]
    assert named == ["compute_s", "compute_s on node1", "compute_s on node2"]


def test_slower_on_one_host_names_the_host() -> None:
    rows = before_after.rows(
        runs(1, noise=0.005), runs(2, noise=0.005, node2=1.3, communication_wait_s=6.0)
    )
    assert verdict(rows) == "slower"
    assert (verdict(rows, "compute_s", "node1"), verdict(rows, "compute_s", "node2")) == (
        "cannot tell",
        "slower",
    )
    said = "\n".join(before_after.lines(rows))
    assert "communication_wait_s: +49.93 ms per step" in said
    assert "compute_s on node2" in said
    assert "compute_s on node1" not in said


def test_one_pair_says_nothing_and_few_say_how_many_more() -> None:
    rows = before_after.rows(runs(1, 1), runs(2, 1, compute_s=0.5))
    assert verdict(rows) == "cannot tell"
    assert before_after.lines(rows)[0].endswith("(1 pair)")
    rows = before_after.rows(runs(1, 3), runs(2, 3, compute_s=0.97))
    assert missing(before_after.lines(rows)[0], "more pairs") == []


def test_runs_of_several_kinds_are_judged_each_and_together() -> None:
    def kinds(seed: int, **factors: float) -> list[Run]:
        return [
            replace(one, cell=cell)
            for cell in ("a", "b")
            for one in runs(seed + ord(cell), 3, **factors)
        ]

    rows = before_after.rows(kinds(1), kinds(5, compute_s=0.6))
    assert {row["runs"] for row in rows} == {ALL, "a", "b"}
    assert before_after.lines(rows)[0].startswith("all: faster")
    (of_all,) = [row for row in rows if (row["runs"], row["quantity"]) == (ALL, "epoch_s")]
    assert of_all["pairs"] == 6


def test_what_differs_is_listed() -> None:
    before, after = (
        runs(1),
        [replace(one, software={"torch": "2.13", "python": "3.11"}) for one in runs(2)],
    )
    assert before_after.differences(before, after) == ["torch: 2.12 -> 2.13"]
    moved = [replace(one, of_host={"node7": one.of_host["node1"]}) for one in after]
    assert "hosts: node1, node2 -> node7" in before_after.differences(before, moved)
    assert {row["host"] for row in before_after.rows(before, moved)} == {
        ALL
    }  # no host is on both sides
    # A machine file with one more variable is a stage too; runs without it have it unset.
    before = [replace(one, environment={"OMP_NUM_THREADS": "1"}) for one in runs(1)]
    after = [
        replace(one, environment={"OMP_NUM_THREADS": "1", "ONEDNN_MAX_CPU_ISA": "SSE41"})
        for one in runs(2)
    ]
    assert before_after.differences(before, after) == ["ONEDNN_MAX_CPU_ISA: unset -> SSE41"]
    mixed = [*before[1:], after[0]]
    assert before_after.differences(before, mixed) == ["ONEDNN_MAX_CPU_ISA: unset -> SSE41, unset"]


def test_sides_made_one_after_the_other_are_said() -> None:
    """A drift of the machine looks like software then."""
    before = [replace(one, began_s=float(one.repeat)) for one in runs(1)]
    after = [replace(one, began_s=one.repeat + 100.0) for one in runs(2)]
    assert [line.split(":")[0] for line in before_after.differences(before, after)] == ["order"]
    assert [line.split(":")[0] for line in before_after.differences(after, before)] == ["order"]
    alternated = [replace(one, began_s=one.repeat + 0.5) for one in runs(2)]
    assert before_after.differences(before, alternated) == []


def test_a_recipe_that_was_changed_is_listed(tmp_path: Path) -> None:
    """Ids have the name of a recipe, and not what stands in it."""
    found = {}
    for precision in ("fp32", "bf16"):
        recipe = replace(SPEC.recipe, precision=precision)
        folder = write_record(tmp_path / precision, replace(SPEC, recipe=recipe))
        found[precision] = [before_after.run(ours.record(folder))]
    changed = before_after.differences(found["fp32"], found["bf16"])
    assert changed == ['setting recipe.precision: "fp32" -> "bf16"']
    assert before_after.differences(found["fp32"], found["fp32"]) == []


def test_a_program_that_does_not_say_its_parts_has_none_on_a_host(tmp_path: Path) -> None:
    of_program = before_after.run(made(tmp_path, spec(script(tmp_path))))
    assert of_program is not None and of_program.seconds["sample_s"] > 0
    assert not any(of_program.of_host.values())


def test_programs_that_end_when_they_like_are_compared_by_sample(tmp_path: Path) -> None:
    (tmp_path / "few").mkdir()
    (tmp_path / "many").mkdir()
    few, many = (
        before_after.run(made(tmp_path / name, spec(script(tmp_path / name, steps=steps))))
        for name, steps in (("few", 12), ("many", 48))
    )
    assert few is not None and many is not None
    assert few.cell == many.cell
    assert 0.5 < many.seconds["sample_s"] / few.seconds["sample_s"] < 2.0


def test_nothing_in_common() -> None:
    other = [replace(one, cell="other") for one in runs(2)]
    assert before_after.rows(runs(1), other) == before_after.lines([]) == []


# Records


def planted(folder: Path, machine: str, repeat: int, forward_s: float, torch: str) -> Path:
    times = {"data_wait_s": 0.01, "backward_s": 0.2, "optimizer_s": 0.01, "communication_s": 0.02}
    record = of_two_nodes(
        folder, machine, repeat, forward_s=forward_s * (1 + 0.01 * repeat), **times
    )
    edit_log(record, '"torch": "2.0"', f'"torch": "{torch}"')
    edit_log(
        record, '"command": "python"', f'"command": "env OMP_NUM_THREADS=1 STAGE={torch} torchrun"'
    )
    return record


def test_records_of_two_machine_files_are_compared(tmp_path: Path) -> None:
    for repeat in (1, 2, 3):
        planted(tmp_path / "runs", "stage-2024", repeat, 0.1, "2.0")
        planted(tmp_path / "runs", "stage-2025", repeat, 0.05, "2.1")
    before, refused = before_after.side("stage-2024", tmp_path)
    after, _ = before_after.side("stage-2025", tmp_path)
    assert (len(before), len(after), refused) == (3, 3, [])
    rows = before_after.rows(before, after)
    assert (
        verdict(rows)
        == verdict(rows, "compute_s")
        == verdict(rows, "compute_s", "node7")
        == "faster"
    )
    (whole,) = [row for row in rows if row["quantity"] == "epoch_s"]
    assert whole["ratio"] == pytest.approx(0.29 / 0.34, rel=0.01)
    assert before_after.differences(before, after) == ["STAGE: 2.0 -> 2.1", "torch: 2.0 -> 2.1"]
    # The same two as folders.
    (tmp_path / "new").mkdir()
    for record in (tmp_path / "runs").glob("stage-2025-*"):
        record.rename(tmp_path / "new" / record.name)
    assert before_after.rows(before, before_after.side(str(tmp_path / "new"), tmp_path)[0]) == rows
    path = tmp_path / layout.comparison("stage-2024", "/old/results/../runs")
    assert path.name == "stage-2024-old_results_.._runs.csv"
    write_csv(rows, before_after.COLUMNS, path)
    assert len(pd.read_csv(path)) == len(rows)
    # The page of both, and of a side with itself.
    page = path.with_suffix(".html")
    sides = {"stage-2024": [one.folder for one in before], "<new>": [*(tmp_path / "new").iterdir()]}
    compared.write(page, sides, rows, before_after.differences(before, after))
    text = page.read_text(encoding="utf-8")
    assert text.index("STAGE: 2.0 -&gt; 2.1") < text.index("Ratios") < text.index("<img")
    assert "<new>" not in text and "ddp, &lt;new&gt;" in text
    assert before_after.shared_records(before, after) == []
    assert missing(before_after.shared_records(before, before)[0], "3 of 3") == []


def test_a_side_of_two_machines_is_asked_which(tmp_path: Path) -> None:
    for machine in ("local", "local-2"):
        planted(tmp_path / "kept/old/runs", machine, 1, 0.1, "2.0")
    with refuses(ConfigError, "local, local-2", "old/local", "old/local-2"):
        before_after.side("old", tmp_path)
    assert [
        len(before_after.side(f"old/{name}", tmp_path)[0]) for name in ("local", "local-2", "x")
    ] == [1, 1, 0]


def test_a_damaged_record_is_named_and_left_out(tmp_path: Path) -> None:
    record = planted(tmp_path / "runs", "here", 1, 0.1, "2.0")
    (record / "steps.parquet").write_bytes(b"no table")
    found, refused = before_after.side("here", tmp_path)
    assert found == []
    assert "steps.parquet" in refused[0]
    assert before_after.side("nowhere", tmp_path) == ([], [])


# Real trainings under three stages of one machine, as `ddlbench compare` read them: what it says of
# them stays. LeNet, DDP, two workers on 2 cores of an AMD EPYC, 2026-11-22, alternated, while other
# programs kept the machine busy. `old` and `same` are the same software; `new` asks for four
# threads per rank (OMP_NUM_THREADS) where there is one core.
STAGES: dict[str, list[Run]] = {
    stage: [Run(**run) for run in runs]
    for stage, runs in json.loads(
        Path(__file__).with_name("compare_stages.json").read_text()
    ).items()
}


def test_another_variable_is_told_with_the_part_that_it_moves() -> None:
    rows = before_after.rows(STAGES["old"], STAGES["new"])
    said = before_after.lines(rows)
    assert missing(said[0], ": slower, ", "epoch +") == []
    moved = [line.split(":")[0].strip() for line in said[1:]]
    assert {"compute_s", "compute_s on vm"} <= set(moved)
    assert "communication_transfer_s" not in moved
    assert before_after.differences(STAGES["old"], STAGES["new"]) == ["OMP_NUM_THREADS: 1 -> 4"]


def test_the_same_software_cannot_be_told() -> None:
    (said,) = before_after.lines(before_after.rows(STAGES["old"], STAGES["same"]))
    assert missing(said, ": cannot tell, ", "epoch") == []
    assert before_after.differences(STAGES["old"], STAGES["same"]) == []
