"""What makes two sides of a comparison unlike: the machine, its nodes, the order, what else ran;
each planted alone.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from ddlbench.analysis.tables import frame
from ddlbench.audit import _neighbours
from ddlbench.audit.check import audit
from ddlbench.audit.material import of_study, of_tables
from ddlbench.audit.rules.accuracy import _expected_epochs
from ddlbench.core.spec import id_of_repeat

from tests.builders.records import RANKS, SPEC, write_record
from tests.builders.tables import row
from tests.unit.audit_clean import Fault, Tables, changed, found, put, study

STUDY = study()
PYTHON = "env OMP_NUM_THREADS=1 python -m ddlbench.train"


def of_ddp(**values: Any) -> Fault:
    """Values of one side of the comparison."""
    return put("runs", lambda runs: runs["framework"] == "ddp", **values)


def nccl_of_ddp(runs: pd.DataFrame) -> pd.Series:
    """A variable of NCCL's for one side of the comparison."""
    return runs["framework"].map({"ddp": "NCCL_ALGO=Ring"}).fillna("")


PLANTED: dict[str, tuple[str, Fault]] = {
    "power caps differ between sides": ("same-power-limit", of_ddp(device_power_limit_w=300.0)),
    "the clock of one rank": ("one-slow-device", put("runs", 6, device_clock_least_mhz=1100.0)),
    "the temperature of one rank": ("one-slow-device", put("runs", 6, device_temperature_c=91.0)),
    "cores far from the GPU": ("cores-of-ranks", put("runs", 6, near_cores_least_share=0.0)),
    "half a core each": ("cores-of-ranks", put("runs", 6, cores_per_rank=0.5)),
    "fewer cores on one side": ("same-resources", of_ddp(cores_per_rank=4.0)),
    "more energy than a node draws": ("possible-power", put("runs", 6, energy_j=1e7)),
    "a counter that stands still": ("possible-power", put("runs", 6, energy_j=1e-3)),
    "a GPU beyond its limit": ("possible-power", put("runs", 6, device_energy_j=1e5)),
    "top-1 equal to top-5": ("top1-is-not-top5", put("runs", 6, final_top5=0.9)),
    "best top-1 equal to best top-5": ("top1-is-not-top5", put("runs", 6, best_top5=0.91)),
    "a clock coarser than a step": ("fine-clock", put("runs", 6, clock_resolution_s=1.0)),
    "another NCCL": (
        "same-versions",
        put(
            "runs",
            nccl_version=lambda runs: runs["framework"].map({"ddp": "2.21.5"}).fillna("2.19.3"),
        ),
    ),
    "a container against none": ("same-versions", of_ddp(container="a" * 64)),
    "NCCL's variables of one framework": (
        "same-environment",
        put(
            "runs",
            device="cuda",
            command=lambda runs: runs["command"].where(
                runs["framework"] != "ddp", PYTHON.replace("env", "env NCCL_ALGO=Ring")
            ),
        ),
    ),
    "NCCL's variables that ranks found": (
        "same-environment",
        put("runs", device="cuda", environment=nccl_of_ddp),
    ),
    "TF32 of one framework": (
        "same-environment",
        put(
            "runs",
            environment=lambda runs: (
                runs["framework"].map({"ddp": "NVIDIA_TF32_OVERRIDE=1"}).fillna("")
            ),
        ),
    ),
    "compile on one side": (
        "same-options",
        of_ddp(options='{"framework": "ddp", "compile": true}'),
    ),
    "channels_last on one side": (
        "same-options",
        of_ddp(options='{"framework": "ddp", "channels_last": true}'),
    ),
    "other seeds on one side": ("same-seed", of_ddp(seed=lambda runs: runs["seed"] + 100)),
    "each framework on its own node": (
        "nodes-confounded",
        put("runs", hosts=lambda runs: runs["framework"] + "-node"),
    ),
    "load by others": ("busy-machine", put("runs", 6, others_cores=1.3)),
    "start-up within another's training": (
        "overlapping-runs",
        put("runs", 6, begun_s=lambda runs: runs.loc[5, "started_s"]),
    ),
}


@pytest.mark.parametrize("what", PLANTED)
def test_it_is_found_by_its_rule(what: str) -> None:
    rule, fault = PLANTED[what]
    rows = [row for row in found(rule, changed(fault, STUDY)) if row["severity"] != "not checked"]
    assert rows


def test_variants_of_both_sides_with_the_same_options_are_compared_fairly() -> None:
    both = STUDY["runs"]["framework"].map({"ddp": "ddp", "horovod": "horovod"})
    fast = STUDY["runs"].assign(
        options=[f'{{"compile": true, "framework": "{name}"}}' for name in both]
    )
    assert found("same-options", STUDY | {"runs": fast}) == []


def test_options_of_records_of_before_are_no_difference_in_variables() -> None:
    """Records of before say what the command gave; later ones what ranks found, too."""
    tables = changed(
        put("runs", lambda runs: runs["repeat"] > 2, environment="NCCL_ALGO=Ring"), STUDY
    )
    assert found("same-environment", tables) == []


def test_variables_of_nccl_say_nothing_on_cpus() -> None:
    """Horovod's launcher names an interface there, too."""
    assert (
        found(
            "same-environment", changed(put("runs", device="cpu", environment=nccl_of_ddp), STUDY)
        )
        == []
    )


def test_nodes_that_repeats_take_at_random_are_in_the_intervals() -> None:
    """Each side on nodes of its own, but another one for each repeat."""
    runs = STUDY["runs"]
    tables = STUDY | {
        "runs": runs.assign(hosts=runs["framework"] + "-node" + runs["repeat"].astype(str))
    }
    assert found("nodes-confounded", tables) == []


def test_a_third_framework_between_two_hides_no_order() -> None:
    """All of DDP before all of Horovod, and FSDP all the time."""
    runs = STUDY["runs"]
    third = runs[runs["framework"] == "ddp"].assign(
        framework="fsdp", run=lambda rows: rows["run"] + "-fsdp"
    )
    both = pd.concat([runs, third], ignore_index=True)
    place = both.groupby("framework").cumcount()
    first = both["framework"].map({"ddp": 0, "horovod": 5000, "fsdp": 0})
    both["started_s"] = (
        1.7e9 + first + 100.0 * place * both["framework"].map({"ddp": 1, "horovod": 1, "fsdp": 4})
    )
    rows = found("run-order", STUDY | {"runs": both})
    assert rows and all("ddp" in row["evidence"] and "horovod" in row["evidence"] for row in rows)


# One cause, one finding.


def test_all_slow_repeats_of_one_node_are_one_finding() -> None:
    def slow(tables: Tables) -> None:
        runs = tables["runs"]
        chosen = runs.index[(runs["workers"] == 1) & (runs["repeat"] == 2)][:3]
        runs.loc[chosen, "throughput_images_per_s"] *= 0.5
        runs.loc[chosen, "hosts"] = "node9"

    (row,) = found("slow-repeat", changed(slow, STUDY))
    assert len(row["runs"].split("; ")) == 3 and "node9" in row["evidence"]


def test_all_repeats_of_one_slow_hour_are_one_finding() -> None:
    def slow(tables: Tables) -> None:
        tables["runs"].loc[[20, 21, 22], "throughput_images_per_s"] *= 0.5
        tables["runs"].loc[40, "throughput_images_per_s"] *= 0.5

    rows = found("slow-repeat", changed(slow, STUDY))
    assert sorted(len(row["runs"].split("; ")) for row in rows) == [1, 3]


def test_a_repeat_that_failed_is_named_as_failed_only() -> None:
    def fail(tables: Tables) -> None:
        run = tables["runs"].loc[6]
        tables["runs"] = tables["runs"].drop(index=6).reset_index(drop=True)
        tables["failures"] = frame(
            "failures", [{"run": run["run"], "rule": "train", "cause": "killed"}]
        )

    tables = changed(fail, STUDY)
    named = {
        row["rule"]
        for row in audit(of_tables(tables), ["failed-runs", "missing-repeats", "uneven-repeats"])
    }
    assert named == {"failed-runs"}


@pytest.mark.parametrize("first", [1, 2, 7])
@pytest.mark.parametrize("failed", [False, True], ids=["all well", "one failed"])
def test_numbers_of_others_logs_begin_anywhere(first: int, failed: bool) -> None:
    runs = STUDY["runs"].assign(repeat=STUDY["runs"]["repeat"] + first - 1, records="mlperf")
    if failed:
        runs.loc[runs["repeat"] == first + 1, "status"] = "failed"
    tables = of_tables(STUDY | {"runs": runs})
    assert audit(tables, ["missing-repeats"]) == []
    gap = of_tables(STUDY | {"runs": runs[runs["repeat"] != first + 2]})
    assert len(audit(gap, ["missing-repeats"])) == 12


def test_the_id_of_another_repeat() -> None:
    for spec in (SPEC, replace(SPEC, repeat=3, timed=False, profiled=True)):
        assert id_of_repeat(spec.id, spec.repeat, 12) == replace(spec, repeat=12).id


def honest(seed: int, noise: float) -> Tables:
    """A study of two equal frameworks, whose runs differ by noise alone."""
    rng, runs = np.random.default_rng(seed), STUDY["runs"]
    runs = runs[(runs["loader"] == "native") & (runs["repeat"] <= 3)].reset_index(drop=True)
    rate = 900.0 * runs["workers"] ** 0.9 * np.exp(rng.normal(0, noise, len(runs)))
    runs = runs.assign(throughput_images_per_s=rate, epoch_s=6400 / rate)
    return STUDY | {"runs": runs}


@pytest.mark.more
def test_equal_frameworks_are_ranked_by_no_noise() -> None:
    """Noise of 5 %: before, efficiencies and rates that differed by chance were called apart in a
    third of studies.
    """
    warned = sum(bool(found("common-base", honest(seed, 0.05))) for seed in range(20))
    assert warned == 0


# What is known of convergence.
POINTS = pd.DataFrame(
    {
        "global_batch": [1632, 3264, 4096, 8192],
        "weight_decay": [5e-5, 5e-5, 2e-4, 2e-4],
        "mean_epochs_to_0.759": [35.0, 35.2, 40.0, 42.0],
    }
)


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (64, 35.0),
        (1632, 35.0),
        (2448, 35.1),
        (4000, 35.2),
        (4096, 40.0),
        (6144, 41.0),
        (65536, 42.0),
    ],
)
def test_between_two_recipes_the_reference_is_the_faster_one(batch: int, expected: float) -> None:
    assert _expected_epochs(POINTS, batch) == pytest.approx(expected)


# What ran beside.


def test_a_record_of_another_study_is_a_neighbour(tmp_path: Path) -> None:
    """Two studies that were started in two terminals: the audit of one reads the records of
    both.
    """
    runs, tables = tmp_path / "runs", tmp_path / "tables"
    record = write_record(runs, ranks=[rank | {"started": 1.0} for rank in RANKS])
    host = "node7"
    table = STUDY["runs"].assign(hosts="node1")
    table.loc[6, ["hosts", "started_s"]] = [host, 2.0]
    tables.mkdir()
    table.to_parquet(tables / "runs.parquet")
    rows = audit(of_study(tables, runs=runs), ["overlapping-runs"])
    (mine,) = [row for row in rows if record.name in row["runs"]]
    assert mine["runs"].split("; ")[0] == table.loc[6, "run"] and host in mine["evidence"]
    alone = audit(of_study(tables), ["overlapping-runs"])
    assert not [row for row in alone if record.name in row["runs"]]


def test_a_log_that_makes_no_sense_is_no_neighbour(tmp_path: Path) -> None:
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd/run.mllog").write_text(
        ':::MLLOG {"key": "ddlbench_ranks", "value": 3, "time_ms": 1}\n'
    )
    assert _neighbours.read(tmp_path, 0.0).empty


def test_a_run_that_went_on_was_there_since_then_alone(tmp_path: Path) -> None:
    """Before, it was on another node, or waited: another run may train there meanwhile."""
    record = write_record(tmp_path)
    log = record / "run.mllog"
    began = _neighbours.read(tmp_path, 0.0).iloc[0]
    half_s = (began["begun_s"] + began["ended_s"]) / 2
    resumed = {"namespace": "", "time_ms": round(1000 * half_s), "event_type": "POINT_IN_TIME"}
    resumed |= {"key": "ddlbench_resumed", "value": {"step": 1, "elapsed_s": 1.0}, "metadata": {}}
    log.write_text(f":::MLLOG {json.dumps(resumed)}\n{log.read_text()}")
    now = _neighbours.read(tmp_path, 0.0).iloc[0]
    assert (now["begun_s"], now["ended_s"]) == (pytest.approx(half_s, abs=1e-3), began["ended_s"])


def test_a_program_that_was_started_again_was_there_since_then_alone(tmp_path: Path) -> None:
    """The times of its steps are without the interruption."""
    write_record(tmp_path, reading={"began_s": [1.0, 9.0]})
    assert _neighbours.read(tmp_path, 0.0).iloc[0]["begun_s"] == 9.0
    for odd in (None, "read", {}, {"began_s": 7}, {"began_s": ["7", None]}):
        (folder,) = tmp_path.iterdir()
        shutil.rmtree(folder)
        write_record(tmp_path, reading=odd)
        assert _neighbours.read(tmp_path, 0.0).iloc[0]["begun_s"] != 9.0


def test_runs_beside_one_that_waited_to_go_on_are_no_error() -> None:
    beside = put("runs", 6, begun_s=lambda runs: runs.loc[5, "started_s"])
    assert found("overlapping-runs", changed(beside, STUDY))
    went_on = changed(put("runs", 6, resumes=1), changed(beside, STUDY))
    assert found("overlapping-runs", went_on) == []
    row = went_on["runs"].loc[6]
    other = went_on["runs"].loc[5]
    since = {"run": row["run"], "hosts": row["hosts"], "ended_s": other["started_s"] + 1e6}
    for begun_s, told in ((other["started_s"], True), (other["started_s"] + 1e5, False)):
        there = pd.DataFrame([since | {"begun_s": begun_s}])
        rows = found("overlapping-runs", {**went_on, "neighbours": there})
        named = [one for one in rows if {row["run"], other["run"]} == {*one["runs"].split("; ")}]
        assert bool(named) is told


def test_a_base_of_one_batch_is_not_slow_beside_the_ceiling_of_another() -> None:
    """Each batch keeps its own series under strong scaling."""
    rates = {
        64: {"synthetic": 300.0, "native": 290.0},
        1024: {"synthetic": 1000.0, "native": 900.0},
    }

    def rules(slow: float) -> list[dict[str, str]]:
        rows = [
            row(rate * n**0.9 * by, loader=loader, workers=n, global_batch=batch)
            | {"scaling": "strong"}
            for batch, of_batch in rates.items()
            for loader, rate in of_batch.items()
            for by in [slow if (batch, loader) == (1024, "native") else 1.0]
            for n in (1, 4)
        ]
        return found("slow-base", {"runs": frame("runs", rows)})

    assert rules(slow=1.0) == []
    assert rules(slow=0.4)
