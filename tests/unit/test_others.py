"""What other processes do beside a run: in its record and in the preflight; records of before do
not say it.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from ddlbench.analysis.collect import collect
from ddlbench.analysis.recorded import OTHERS, resources
from ddlbench.core.columns import Why
from ddlbench.core.record import MLLOG
from ddlbench.preflight import judge, scout
from ddlbench.train import counters

from tests.builders.records import RANKS, SPEC, seal_again, write_record


def rank(host: str, cpu_s: float, **of_node: float) -> dict[str, Any]:
    return {"host": host, "local_rank": 0 if of_node else 1, "cpu_s": cpu_s} | of_node


def others(ranks: list[dict[str, Any]]) -> float | Why:
    value: float | Why = resources(ranks, "cpu", {})[OTHERS.name]
    return value


def test_others_are_what_a_node_did_less_what_its_ranks_did() -> None:
    """The node where they took most: of 100 s there 200 s of CPU time, of which two ranks took 90 s
    each.
    """
    busy = [rank("a", 90.0, node_cpu_s=200.0, wall_s=100.0), rank("a", 90.0)]
    calm = [rank("b", 90.0, node_cpu_s=181.0, wall_s=100.0), rank("b", 90.0)]
    assert others([*busy, *calm]) == pytest.approx(0.2)
    assert others(calm) == pytest.approx(0.01)


def test_less_than_nothing_is_nothing() -> None:
    """Counters of ranks and of the node tick apart."""
    assert others([rank("a", 101.0, node_cpu_s=100.0, wall_s=100.0)]) == 0.0


@pytest.mark.parametrize("missing", ["node_cpu_s", "cpu_s", "wall_s"])
def test_records_of_before_do_not_say_it(missing: str) -> None:
    told = rank("a", 90.0, node_cpu_s=200.0, wall_s=100.0)
    assert isinstance(
        others([{name: value for name, value in told.items() if name != missing}]), Why
    )


def test_a_record_says_the_slowest_gpu_its_cores_and_when_it_began(tmp_path: Path) -> None:
    levels = [
        {"device_clock_mhz": 1980, "near_cores_share": 1.0},
        {"device_clock_mhz": 1200, "near_cores_share": 0.0},
    ]
    ranks = [
        old | new | {"started": 0.5, "host": "node7"}
        for old, new in zip(RANKS, levels, strict=True)
    ]
    record = write_record(tmp_path, ranks=ranks)
    log = record / MLLOG
    facts = '{"cores": 3, "environment": "NCCL_ALGO=Ring", "nccl_version": "2.21.5", '
    log.write_text(
        re.sub(r'("key": "ddlbench_facts", "value": )\{', rf"\g<1>{facts}", log.read_text())
    )
    seal_again(record)
    assert collect([record], tmp_path / "tables") == []
    (run,) = pd.read_parquet(tmp_path / "tables/runs.parquet").to_dict("records")
    assert (run["device_clock_least_mhz"], run["near_cores_least_share"]) == (1200.0, 0.0)
    assert (run["cores_per_rank"], run["begun_s"]) == (1.5, 0.5)
    assert (run["environment"], run["nccl_version"]) == ("NCCL_ALGO=Ring", "2.21.5")


def test_a_record_of_before_is_read_and_leaves_them_null(tmp_path: Path) -> None:
    assert collect([write_record(tmp_path)], tmp_path / "tables") == []
    (run,) = pd.read_parquet(tmp_path / "tables/runs.parquet").to_dict("records")
    for name in (
        "environment",
        "nccl_version",
        "others_cores",
        "cores_per_rank",
        "device_clock_least_mhz",
    ):
        assert pd.isna(run[name]), name


def test_a_run_that_learns_nothing_needs_no_accuracy(tmp_path: Path) -> None:
    """Records of before had one: of a single batch, learnt by heart."""
    before = write_record(tmp_path, replace(SPEC, loader="synthetic"))
    now = write_record(tmp_path, replace(SPEC, loader="synthetic", repeat=2))
    lines = [
        line for line in (now / MLLOG).read_text().splitlines() if '"eval_accuracy"' not in line
    ]
    text = "".join(f"{line}\n" for line in lines)
    (now / MLLOG).write_text(re.sub(r'"correct": 2, "correct_top5": \d, ', "", text))
    seal_again(now)
    assert collect([before, now], tmp_path / "tables") == []
    runs = pd.read_parquet(tmp_path / "tables/runs.parquet")
    assert runs["final_top1"].isna().all() and (runs["status"] == "success").all()
    validated_s = (
        pd.read_parquet(tmp_path / "tables/epochs.parquet").groupby("run")["validated_s"].count()
    )
    assert (validated_s == SPEC.epochs).all()


# The preflight.


def test_the_preflight_sees_what_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    node, mine, clock = ticks(10.0, 12.5), ticks(1.0, 1.5), ticks(0.0, 2.0)
    monkeypatch.setattr(counters, "node_cpu_s", lambda: next(node))
    monkeypatch.setattr(counters, "cpu_s", lambda: next(mine))
    monkeypatch.setattr(scout.time, "monotonic", lambda: next(clock))
    assert scout.busy_cores(0.0) == pytest.approx(1.0)


def ticks(*values: float) -> Iterator[float]:
    return iter(values)


def test_a_busy_node_is_a_warning_of_the_preflight(promised: dict[str, Any]) -> None:
    facts = {
        "cores": [0],
        "modules": {},
        "lacks": [],
        "elsewhere": [],
        "interfaces": [],
        "free_bytes": {"data": 1e15},
    }
    facts |= {"doing": None, "host": "node1"}
    asked = promised | {"modules": [], "environment": {}, "cores_per_worker": 1}
    texts = [
        [
            text
            for is_error, text in judge._of_rank(facts | {"others_cores": busy}, asked, True)
            if not is_error
        ]
        for busy in (0.1, 1.7)
    ]
    assert len(texts[1]) == len(texts[0]) + 1
    assert json.dumps(texts[1]).count("1.7") == 1
