"""What `collect` makes of records: each measure, why one is null, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from ddlbench.analysis import failures, times
from ddlbench.analysis.collect import collect
from ddlbench.analysis.scaling import scaling
from ddlbench.analysis.sheets import Costs, Planned
from ddlbench.audit import Material
from ddlbench.audit.rules.records import failed_runs
from ddlbench.core import registry
from ddlbench.records import ours

from tests.builders.records import (
    RANKS,
    SPEC,
    edit_log,
    reasons,
    retimed,
    seal_again,
    tables,
    write_record,
)
from tests.facts import missing


def test_the_first_validation_does_not_count_where_there_are_more(tmp_path: Path) -> None:
    """It begins cold: here it takes 5 s, and the others 1.5 s."""
    record = ours.record(write_record(tmp_path / "a", replace(SPEC, epochs=3)))
    events = [
        replace(one, time_s=one.time_s - 3.5)
        if one.key == "eval_start" and one.metadata["epoch_num"] == 1
        else one
        for one in record.events
    ]
    assert times.measures(replace(record, events=events))["validation_s"] == pytest.approx(1.5)


def test_a_run_is_measured_after_its_first_epoch(tmp_path: Path) -> None:
    runs, epochs = tables(tmp_path / "tables", write_record(tmp_path / "a"))
    run = runs.iloc[0]
    # The second epoch: rank 0 needs 2 x 0.5 s, rank 1 needs 2 x 0.8 s = 1.6 s for 16 images.
    assert run["throughput_images_per_s"] == pytest.approx(10)
    assert run["epoch_s"] == pytest.approx(1.6)
    assert run["train_s"] == pytest.approx(16.6)
    assert run["full_train_s"] == run["train_s"]
    assert run["validation_s"] == pytest.approx(1.5)
    assert run["data_wait_s"] == pytest.approx(0.1)
    assert run[["forward_s", "backward_s", "optimizer_s"]].tolist() == pytest.approx(
        [0.15, 0.15, 0.1]
    )
    assert run["compute_s"] == pytest.approx(0.4)
    assert run["communication_s"] == pytest.approx(0.15)
    assert (run["final_top1"], run["best_top1"]) == (0.25, 0.5)
    assert (run["final_top5"], run["best_top5"]) == (0.5, 0.75)
    assert run["final_loss"] == pytest.approx(
        (3 + 4) * 2 / 2
    )  # steps 2 and 3, each summed over two ranks
    assert {k: run[k] for k in SPEC.columns()} == SPEC.columns()
    assert (run["status"], run["hosts"], run["images"]) == ("success", "node7,node8", 16)
    assert (run["commit"], run["torch_version"], run["command"]) == ("abc", "2.0", "python")
    assert not run["extrapolated"]
    assert list(epochs["epoch"]) == [1, 2]
    assert list(epochs["lr"]) == pytest.approx([0.1, 0.3])
    assert list(epochs["lr_end"]) == pytest.approx([0.2, 0.4])
    assert list(epochs["loss"]) == pytest.approx([3, 7])
    assert list(epochs["top1"]) == [0.5, 0.25]
    assert list(epochs["top5"]) == [0.75, 0.5]
    assert list(epochs["train_s"]) == pytest.approx([12, 1.6])
    assert list(epochs["throughput_images_per_s"]) == pytest.approx([16 / 12, 10])


def test_of_a_step_the_last_rank_waits_for_nobody(tmp_path: Path) -> None:
    late = {
        (2, 0): 0.1,
        (2, 1): 0.3,
        (3, 0): 0.7,
        (3, 1): 0.2,
    }  # another rank is last in the next step
    folder = retimed(
        write_record(tmp_path / "a"),
        communication_s=lambda s: [
            late.get(key, 9.0) for key in zip(s["step"], s["rank"], strict=True)
        ],
    )
    run = tables(tmp_path / "tables", folder)[0].iloc[0]
    assert run["communication_transfer_s"] == pytest.approx((0.1 + 0.2) / 2)
    assert run["communication_wait_s"] == pytest.approx((0.0 + 0.2 + 0.5 + 0.0) / 4)
    assert run["communication_s"] == pytest.approx(
        run["communication_transfer_s"] + run["communication_wait_s"]
    )
    single = write_record(tmp_path / "b", replace(SPEC, workers=1))
    run = tables(tmp_path / "one", single)[0].iloc[0]
    assert run[["communication_transfer_s", "communication_wait_s"]].isna().all()
    assert missing(reasons(tmp_path / "one")["communication_wait_s"], "one worker") == []


def test_step_times_are_medians_after_warm_up(tmp_path: Path) -> None:
    folder = retimed(
        write_record(tmp_path / "a"),
        data_wait_s=lambda s: s["data_wait_s"].mask((s["step"] == 3) & (s["rank"] == 1), 50.0),
    )
    collect(
        [folder, write_record(tmp_path / "b", replace(SPEC, repeat=2, timed=False))],
        tmp_path / "tables",
    )
    table = pd.read_parquet(tmp_path / "tables/step_times.parquet")
    assert list(table["run"]) == [SPEC.id]
    assert table["data_wait_s"][0] == pytest.approx(0.1)
    assert table["forward_s"][0] == pytest.approx(0.15)


def test_what_ranks_measured_is_joined(tmp_path: Path) -> None:
    run = tables(tmp_path / "tables", write_record(tmp_path / "a"))[0].iloc[0]
    assert run[["peak_resident_bytes", "loader_resident_bytes"]].tolist() == [101, 0]
    assert run[["parameters_bytes", "gradients_bytes", "optimizer_bytes"]].tolist() == [10, 10, 20]
    assert run["cpu_cores"] == 1.5
    assert run[["host_energy_j", "energy_j", "full_energy_j"]].tolist() == [60, 60, 60]
    assert run[["network_sent_bytes", "network_received_bytes"]].tolist() == [10, 13]
    assert run[["skipped_steps", "resumes"]].tolist() == [0, 0]
    # Two ranks of one node: what is the node's counts once.
    one = [
        RANKS[0],
        {k: v for k, v in RANKS[1].items() if "_energy" not in k and "network" not in k},
    ]
    one[1] |= {"host": "node7", "local_rank": 1, "device_energy_j": None}
    run = tables(tmp_path / "one", write_record(tmp_path / "b", ranks=one))[0].iloc[0]
    assert run["host_energy_j"] == 30


def test_ranks_of_one_node_do_not_talk_over_its_network(tmp_path: Path) -> None:
    one = [rank | {"host": "node7", "local_rank": number} for number, rank in enumerate(RANKS)]
    run = tables(tmp_path / "tables", write_record(tmp_path / "a", ranks=one))[0].iloc[0]
    assert run[["network_sent_bytes", "network_received_bytes"]].isna().all()
    why = "all ranks ran on one node: their traffic does not pass its network"
    assert reasons(tmp_path / "tables")["network_sent_bytes"] == why


def test_the_start_of_an_epoch_is_a_column(tmp_path: Path) -> None:
    folder = write_record(tmp_path / "a")
    for epoch, seconds in ((1, 7.0), (2, 0.5)):  # the first is warm-up
        said = (
            f':::MLL {{"key": "ddlbench_epoch_start_s", "value": {seconds}, "metadata":'
            f' {{"epoch_num": {epoch}}}'
        )
        with (folder / "run.mllog").open("a") as log:
            log.write(f'{said}, "time_ms": 1}}\n')
    seal_again(folder)
    runs, epochs = tables(tmp_path / "tables", folder)
    assert runs["epoch_start_s"].tolist() == [0.5]
    assert epochs["epoch_start_s"].tolist() == [7.0, 0.5]
    before = write_record(tmp_path / "b")
    runs, epochs = tables(tmp_path / "before", before)
    assert runs["epoch_start_s"].isna().all() and epochs["epoch_start_s"].isna().all()
    assert "epoch_start_s" in reasons(tmp_path / "before")


def test_the_share_of_the_peak_is_that_of_the_runs_precision(tmp_path: Path) -> None:
    bf16 = replace(SPEC, repeat=2, recipe=replace(SPEC.recipe, precision="bf16"))
    old = replace(SPEC, repeat=3)
    records = [write_record(tmp_path / "a"), write_record(tmp_path / "b", bf16)]
    collect(
        [*records, write_record(tmp_path / "c", old, flops_per_image=None)],
        tmp_path / "tables",
        costs=Costs(peaks={"bf16": 0.025}),
    )
    runs = pd.read_parquet(tmp_path / "tables/runs.parquet").set_index("run")
    assert runs["flops_per_image"].dropna().tolist() == [2_000_000_000] * 2
    # 10 images/s on two workers: 10 GFLOP/s each.
    assert runs.loc[bf16.id, "mfu"] == pytest.approx(0.4)
    assert runs.loc[[SPEC.id, old.id], "mfu"].isna().all()
    why = pd.read_parquet(tmp_path / "tables/not_measured.parquet").set_index(["run", "column"])[
        "reason"
    ]
    assert missing(why[SPEC.id, "mfu"], SPEC.machine, "peak_tflops_per_worker", "fp32") == []
    assert missing(why[old.id, "mfu"], "flops_per_image") == []


def test_energy_is_whole_or_null(tmp_path: Path) -> None:
    gpu = replace(SPEC, device="cuda")
    with_devices = [rank | {"device_energy_j": 100.0} for rank in RANKS]
    run = tables(tmp_path / "a", write_record(tmp_path / "ra", gpu, ranks=with_devices))[0].iloc[0]
    assert run[["device_energy_j", "host_energy_j", "energy_j"]].tolist() == [200, 60, 260]
    closed = {
        "host_energy_j": None,
        "not_measured": {"host_energy_j": "energy_uj: Permission denied"},
    }
    half = [with_devices[0], with_devices[1] | closed]
    run = tables(tmp_path / "b", write_record(tmp_path / "rb", gpu, ranks=half))[0].iloc[0]
    assert run["device_energy_j"] == 200
    assert run[["host_energy_j", "energy_j", "full_energy_j"]].isna().all()
    assert (
        missing(
            reasons(tmp_path / "b")["energy_j"], "host_energy_j", "energy_uj", "Permission denied"
        )
        == []
    )
    # Reasons may also be the record's, under the names that ranks use.
    bare = [{"host": "node7", "local_rank": 0, "host_energy_j": None, "cpu_share": None}]
    why = {"host_energy_j": "no RAPL", "cpu_share": "psutil is not installed"}
    tables(
        tmp_path / "c",
        write_record(tmp_path / "rc", replace(SPEC, workers=1), ranks=bare, not_measured=why),
    )
    assert reasons(tmp_path / "c")["energy_j"] == "no host_energy_j: no RAPL"
    assert reasons(tmp_path / "c")["cpu_cores"] == "psutil is not installed"


def test_what_is_null_has_a_reason_and_nothing_else(tmp_path: Path) -> None:
    specs = [
        SPEC,
        replace(SPEC, repeat=2, timed=False),
        replace(SPEC, repeat=3, timed=False, profiled=True),
        replace(SPEC, repeat=4, workers=1, of_epochs=90, loader="synthetic"),
        replace(SPEC, repeat=5),
    ]
    records = [write_record(tmp_path / str(spec.repeat), spec) for spec in specs[:-1]]
    records += [
        write_record(tmp_path / "5", specs[-1], status=None),
        write_record(tmp_path / "6", ranks=[]),
    ]
    for record in records:
        runs, _ = tables(tmp_path / "tables", record)
        measures = runs.loc[0, "throughput_images_per_s":"restart_s"]
        given = pd.read_csv(tmp_path / "tables/not_measured.csv")
        given = given[~given["column"].str.contains("_percent")]
        assert sorted(given["column"]) == sorted(measures.index[measures.isna()])
        assert given["reason"].str.len().gt(10).all()
    assert "cpu_cores" in reasons(tmp_path / "tables")


def test_communication_that_was_not_measured_stays_null_with_the_record_s_reason(
    tmp_path: Path,
) -> None:
    why = "it reduces while it computes"
    folder = write_record(tmp_path / "a", not_measured={"communication_s": why})
    runs, _ = tables(tmp_path / "tables", retimed(folder, communication_s=float("nan")))
    assert runs["communication_s"].isna().all()
    assert runs["throughput_images_per_s"][0] == pytest.approx(
        16 / 1.2
    )  # rank 1: 2 x (0.8 - 0.2) s
    said = reasons(tmp_path / "tables")
    names = ("communication_s", "communication_transfer_s", "communication_wait_s")
    assert {said[name] for name in names} == {why}
    assert said["device_energy_j"] == RANKS[0]["not_measured"]["device_energy_j"]
    other = write_record(
        tmp_path / "b", replace(SPEC, timed=False), not_measured={"communication_s": "sometimes"}
    )
    tables(tmp_path / "untimed", other)
    assert missing(reasons(tmp_path / "untimed")["communication_s"], "timed: false") == []


def test_interrupted_runs_have_their_time_without_interruptions(tmp_path: Path) -> None:
    events = {"elapsed_s": 16.6, "resumed": {"epoch": 1, "step": 2, "elapsed_s": 12.0}}
    run = tables(tmp_path / "tables", write_record(tmp_path / "a", **events))[0].iloc[0]
    assert (run["train_s"], run["full_train_s"], run["resumes"]) == (16.6, 16.6, 1)


def test_measured_runs_say_how_long_all_epochs_take(tmp_path: Path) -> None:
    spec = replace(SPEC, of_epochs=90)
    run = tables(tmp_path / "tables", write_record(tmp_path / "a", spec))[0].iloc[0]
    assert run["extrapolated"]
    assert (run["epochs"], run["of_epochs"]) == (2, 90)
    assert run["train_s"] == pytest.approx(16.6)
    assert run["full_train_s"] == pytest.approx(16.6 + 88 * (1.6 + 1.5))
    assert run["full_energy_j"] == pytest.approx(60 * run["full_train_s"] / 16.6)
    assert run[["final_top1", "best_top1", "final_top5"]].isna().all()
    assert reasons(tmp_path / "tables")["final_top1"] == "2 of 90 epochs were trained"
    assert list(pd.read_parquet(tmp_path / "tables/epochs.parquet")["top1"]) == [0.5, 0.25]


def test_versions_are_those_that_members_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        registry.member("frameworks", "horovod"), "DISTRIBUTION", "horovod", raising=False
    )
    monkeypatch.setattr(
        registry.member("loaders", "native"), "DISTRIBUTION", "torch", raising=False
    )
    variant = replace(SPEC, framework="fused", options=(("framework", "horovod"),))
    folder = write_record(tmp_path / "a", variant)
    edit_log(folder, '"horovod": null', '"horovod": "0.28.1"')
    run = tables(tmp_path / "tables", folder)[0].iloc[0]
    assert run[["framework_version", "loader_version", "torch_version"]].tolist() == [
        "0.28.1",
        "2.0",
        "2.0",
    ]


def test_failed_runs_without_a_record_are_listed(tmp_path: Path) -> None:
    for name in ("b", "a", "never-ran", "was-killed"):
        (tmp_path / name).mkdir()
    for name in ("a", "b", "was-killed"):
        (tmp_path / name / "failed").mkdir()
    report = {
        "cause": "exception",
        "rank": 3,
        "host": "node8",
        "message": "rank 3: ValueError: nan",
        "step": 40,
    }
    (tmp_path / "a/failed/failure.json").write_text(
        json.dumps(report | {"time": 0, "slurm_job_id": "77"})
    )
    (tmp_path / "b/failed/failure.json").write_text(
        json.dumps({"cause": "timeout", "time": "2024-01-02T03:04:05Z"})
    )
    done = write_record(tmp_path / "done")
    (done / "failed").mkdir()  # of an attempt before the one that succeeded
    folders = [done, *(tmp_path / name for name in ("b", "a", "never-ran", "was-killed"))]
    rows = failures.failures(folders)
    assert [row["run"] for row in rows] == ["a", "b", "was-killed"]
    assert rows[0]["when"] == "1970-01-01T00:00:00+00:00"
    assert rows[0]["log"] == str(tmp_path / "a/train.log")
    assert {k: rows[0][k] for k in ("cause", "rank", "step", "slurm_job_id")} == {
        "cause": "exception", "rank": 3, "step": 40, "slurm_job_id": "77",
    }  # fmt: skip
    assert rows[1]["when"] == "2024-01-02T03:04:05Z"
    assert rows[2]["cause"] is None
    said = failures.lines(rows, most=2)
    assert said[0] == "a: rank 3: ValueError: nan"
    assert said[1].startswith("    1970-01-01") and said[1].endswith("a/train.log")
    assert said[2] == "b: timeout"
    assert failures.lines(rows)[4].startswith("was-killed: ")
    assert said[-1] == "... and 1 more"
    collect(folders, tmp_path / "tables")
    table = pd.read_csv(tmp_path / "tables/failures.csv")
    assert list(table["run"]) == ["a", "b", "was-killed"]
    assert table["rank"][0] == 3
    text = (tmp_path / "tables/failures.csv").read_text().splitlines()
    assert ",exception,3,40,node8,77," in text[1]  # whole numbers, though others have none
    assert list(pd.read_parquet(tmp_path / "tables/runs.parquet")["run"]) == [SPEC.id]
    collect(folders[1:], tmp_path / "tables")  # not one record
    assert pd.read_parquet(tmp_path / "tables/runs.parquet").empty


@pytest.mark.parametrize(
    "report", ["[]", "7", "{", '{"rank": "first", "step": {}, "message": 7, "cause": ["a"]}']
)
def test_a_report_that_is_none_hides_no_failed_run(tmp_path: Path, report: str) -> None:
    (tmp_path / "a/failed").mkdir(parents=True)
    (tmp_path / "a/failed/failure.json").write_text(report)
    (row,) = failures.failures([tmp_path / "a"])
    assert (row["run"], row["rank"], row["step"]) == ("a", None, None)
    assert failures.lines([row])[0].startswith("a: ")
    (tmp_path / "b/failed").mkdir(parents=True)
    (tmp_path / "b/failed/failure.json").write_text(
        '{"cause": "killed", "message": "rank 1 was killed", "rank": 1}'
    )
    collect([tmp_path / "a", tmp_path / "b"], tmp_path / "tables")
    assert list(pd.read_parquet(tmp_path / "tables/failures.parquet")["run"]) == ["a", "b"]


def test_failed_jobs_of_inference_are_listed_beside_failed_runs(tmp_path: Path) -> None:
    runs, jobs = (
        [tmp_path / "runs/one"],
        [tmp_path / "inference" / name for name in ("slow", "dead", "well", "new")],
    )
    for folder in (*runs, *jobs[:3]):
        (folder / "failed").mkdir(parents=True)
    (jobs[2] / "inference.json").write_text("{}")  # it went well after a try that did not
    (jobs[1] / "failed/failure.json").write_text(
        json.dumps({"cause": "killed", "rank": 1, "host": "node2", "time": 0})
    )
    rows = failures.failures([*runs, *jobs])
    assert [(row["rule"], row["run"]) for row in rows] == [
        ("train", "one"),
        ("infer", "dead"),
        ("infer", "slow"),
    ]
    assert (rows[1]["cause"], rows[1]["rank"], rows[1]["host"]) == ("killed", 1, "node2")
    assert rows[1]["log"] == str(tmp_path / "inference/dead/infer.log")
    counts = [
        "1 failed run and 2 failed jobs of inference",
        "0 failed runs",
        "1 failed job of inference",
    ]
    assert [failures.counted(some) for some in (rows, [], rows[1:2])] == counts
    collect(runs, tmp_path / "tables", Planned(non_training=jobs))
    table = pd.read_parquet(tmp_path / "tables/failures.parquet")
    assert list(table["run"]) == ["one", "dead", "slow"]
    # The audit counts runs: a table of inference is made of all jobs, or not at all.
    (finding,) = failed_runs.check(Material({"failures": table}))
    assert finding.runs == ("one",)
    assert finding.evidence.startswith("1 runs failed")


def test_of_one_epoch_the_first_tenth_of_steps_is_warm_up(tmp_path: Path) -> None:
    spec = replace(SPEC, epochs=1)  # two steps: at least one is cut, and another 6 s remains
    runs, _ = tables(tmp_path / "tables", write_record(tmp_path / "a", spec))
    assert runs["throughput_images_per_s"][0] == pytest.approx(8 / 6)
    single = replace(spec, global_batch=16)  # one step is all warm-up
    runs, _ = tables(tmp_path / "tables", write_record(tmp_path / "b", single))
    assert runs["throughput_images_per_s"].isna().all()
    assert runs["final_loss"].notna().all()


def test_a_record_without_a_successful_end_is_a_failed_run(tmp_path: Path) -> None:
    records = [
        write_record(tmp_path / "a"),
        write_record(tmp_path / "b", replace(SPEC, repeat=2), status=None),
        write_record(tmp_path / "c", replace(SPEC, repeat=3), status="aborted"),
    ]
    runs, epochs = tables(tmp_path / "tables", *reversed(records))
    assert list(runs["run"]) == sorted(runs["run"])
    assert list(runs["status"]) == ["success", "failed", "failed"]
    assert runs.loc[1:, "throughput_images_per_s":"final_loss"].isna().all(axis=None)
    assert set(epochs["run"]) == {SPEC.id}
    assert scaling(runs)["repeats"].tolist() == [1]
    runs, epochs = tables(tmp_path / "tables", records[1])
    assert (len(runs), len(epochs), epochs["epoch"].dtype) == (1, 0, "int64")


def test_untimed_and_profiled_runs_have_no_times(tmp_path: Path) -> None:
    untimed = replace(SPEC, timed=False)
    profiled = replace(SPEC, timed=False, profiled=True)
    records = write_record(tmp_path / "a", untimed), write_record(tmp_path / "b", profiled)
    runs, epochs = tables(tmp_path / "tables", *records)
    assert runs.loc[:, "throughput_images_per_s":"communication_wait_s"].isna().all(axis=None)
    assert runs["final_top1"].notna().all()
    assert epochs[["train_s", "throughput_images_per_s"]].isna().all(axis=None)
    assert epochs["loss"].notna().all()


def test_synthetic_has_no_accuracy(tmp_path: Path) -> None:
    runs, epochs = tables(
        tmp_path / "tables", write_record(tmp_path / "a", replace(SPEC, loader="synthetic"))
    )
    assert runs[["final_top1", "best_top1"]].isna().all(axis=None)
    assert epochs["top1"].isna().all()
    assert runs["throughput_images_per_s"].notna().all()


def test_learning_rates_are_thinned_but_keep_the_ends_of_epochs(tmp_path: Path) -> None:
    folder = write_record(tmp_path / "a", images=16)
    collect([folder], tmp_path / "tables")
    rates = pd.read_parquet(tmp_path / "tables/learning_rates.parquet")
    assert list(rates["epoch"]) == [0, 0.5, 1, 1.5]
    assert list(rates["lr"]) == pytest.approx([0.1, 0.2, 0.3, 0.4])
    many = write_record(tmp_path / "b", images=800)
    collect([many], tmp_path / "tables")
    rates = pd.read_parquet(tmp_path / "tables/learning_rates.parquet")
    assert len(rates) == 2 * 20
    assert {0, 0.99, 1, 1.99} <= set(rates["epoch"].round(6))


def test_tables_are_the_same_in_both_formats(tmp_path: Path) -> None:
    runs, epochs = tables(tmp_path / "tables", write_record(tmp_path / "a"))
    for name, table in (("runs", runs), ("epochs", epochs)):
        csv = pd.read_csv(tmp_path / f"tables/{name}.csv")
        assert list(csv) == list(table)
        floats = list(table.select_dtypes("float64"))
        pd.testing.assert_frame_equal(csv[floats], table[floats])
    assert not [path for path in (tmp_path / "tables").iterdir() if path.name.startswith(".")]
