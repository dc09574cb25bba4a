"""Real trainings under three stages of one machine, as `ddlbench compare` read them: what it says of them stays.

LeNet, DDP, two workers on 2 cores of an AMD EPYC, 2026-11-22, alternated, while other programs kept the machine busy.
`old` and `same` are the same software; `new` asks for four threads per rank (OMP_NUM_THREADS) where there is one core.
"""

import json
from pathlib import Path

from ddlbench.analysis import compare
from ddlbench.analysis.compare import Run

STAGES: dict[str, list[Run]] = {
    stage: [Run(**run) for run in runs]
    for stage, runs in json.loads(Path(__file__).with_name("compare_stages.json").read_text()).items()
}


def test_another_variable_is_told_with_the_part_that_it_moves() -> None:
    rows = compare.rows(STAGES["old"], STAGES["new"])
    said = compare.lines(rows)
    assert ": slower, time of an epoch +" in said[0]
    moved = [line.split(":")[0].strip() for line in said[1:]]
    assert {"compute_s", "compute_s on vm"} <= set(moved)
    assert "communication_transfer_s" not in moved
    assert compare.differences(STAGES["old"], STAGES["new"]) == ["OMP_NUM_THREADS: 1 -> 4"]


def test_the_same_software_cannot_be_told() -> None:
    (said,) = compare.lines(compare.rows(STAGES["old"], STAGES["same"]))
    assert ": cannot tell, time of an epoch " in said
    assert compare.differences(STAGES["old"], STAGES["same"]) == []


def test_of_two_pairs_no_part_is_told_by_chance() -> None:
    """One part of the equal stages' first two pairs looks slower by itself."""
    first = [[run for run in STAGES[stage] if run.repeat < 3] for stage in ("old", "same")]
    rows = compare.rows(*first)
    assert [row["quantity"] for row in rows if row["verdict"] == "slower"] == ["communication_wait_s"]
    assert len(compare.lines(rows)) == 1
