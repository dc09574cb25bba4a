"""MLPerf result logs: made-up logs of many kinds of writers, whose rates and times are known."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from ddlbench.analysis import scaling
from ddlbench.analysis.collect import collect
from ddlbench.analysis.refusals import RefusedError
from ddlbench.analysis.tables import frame
from ddlbench.audit import material
from ddlbench.audit.check import OF_OTHERS, audit
from ddlbench.core import files
from ddlbench.records import _mllog, _times, mlperf
from ddlbench.show.figures import Options
from ddlbench.show.make_figure import selected, write_data

from tests.builders.tables import row
from tests.conftest import ROOT
from tests.facts import missing, refuses

START = 1_650_000_000_000  # ms
EPOCH_MS, EVAL_MS, EPOCHS = 10_000, 1_000, 4
RATE = 1_281_167 / (EPOCH_MS / 1e3)


def line(key: str, ms: float, value: Any = None, **metadata: Any) -> str:
    about = {
        "namespace": "",
        "time_ms": ms,
        "event_type": "POINT_IN_TIME",
        "key": key,
        "value": value,
    }
    return ":::MLLOG " + json.dumps(
        about | {"metadata": {"file": "train.py", "lineno": 7, **metadata}}
    )


def log(
    said_rate: float | None = None, stop: str | None = "success", first: int = 1, ranks: int = 1
) -> list[str]:
    """Lines of 4 epochs of 10 s, each with an evaluation of 1 s behind it; the first epoch takes 5
    s more.
    """
    lines = [line("submission_benchmark", START, "resnet"), line("global_batch_size", START, 4096)]
    lines += [line("train_samples", START, 1_281_167), line("submission_division", START, "closed")]
    at = START + 60_000
    lines += [line("run_start", at + rank) for rank in range(ranks)]
    for number in range(EPOCHS):
        lines += [line("epoch_start", at + rank, epoch_num=number + first) for rank in range(ranks)]
        at += EPOCH_MS + 5_000 * (number == 0)
        lines += [line("epoch_stop", at - rank, epoch_num=number + first) for rank in range(ranks)]
        if said_rate:
            lines.append(line("throughput", at, said_rate))
        lines.append(line("eval_start", at, epoch_num=number + first))
        at += EVAL_MS
        lines.append(line("eval_stop", at, epoch_num=number + first))
        lines.append(line("eval_accuracy", at, 0.19 * (number + 1), epoch_num=number + first))
    return [*lines, line("run_stop", at, status=stop)] if stop else lines


def place(
    folder: Path,
    lines: list[str] | bytes,
    nodes: int = 1,
    org: str = "Org",
    name: str | None = None,
) -> Path:
    """A result in a checkout, of `nodes` with 8 accelerators each."""
    system = name or f"box_n{nodes}_fw"
    path = folder / org / "results" / system / "resnet" / "result_0.txt"
    path.parent.mkdir(parents=True)
    (folder / org / "systems").mkdir(exist_ok=True)
    about = {
        "number_of_nodes": f"{nodes}",
        "accelerators_per_node": 8,
        "accelerator_model_name": "A1",
        "framework": "F",
    }
    (folder / org / "systems" / f"{system}.json").write_text(json.dumps(about))
    path.write_bytes(lines if isinstance(lines, bytes) else "\n".join(lines).encode() + b"\n")
    return path


def values(folder: Path, lines: list[str] | bytes) -> dict[str, Any]:
    """The measures of one log, with what `submissions` says."""
    made = mlperf.read(place(folder, lines))
    assert made is not None
    return (
        made["run"]
        | made["values"]
        | made["submissions"][0]
        | {"why": made["why"], "epochs": made["epochs"]}
    )


def check(made: dict[str, Any]) -> None:
    assert made["throughput_images_per_s"] == pytest.approx(RATE, rel=1e-3)
    assert made["train_s"] == pytest.approx(49.0, abs=0.01)


def test_times_without_the_first_epoch_and_the_evaluations(tmp_path: Path) -> None:
    made = values(tmp_path, log())
    check(made)
    assert made["epochs"]["top1"] == pytest.approx([0.19, 0.38, 0.57, 0.76])
    assert made["epochs"]["validated_s"] == pytest.approx([16.0, 27.0, 38.0, 49.0])
    assert (made["workers"], made["nodes"], made["global_batch"], made["machine"]) == (
        8,
        1,
        4096,
        "Org box_fw",
    )


def old(text: str) -> str:
    """A line of 0.7 as 0.6 wrote it."""
    about = json.loads(text.split(" ", 1)[1])
    return f":::MLL {about['time_ms'] / 1e3} {about['key']}: " + json.dumps(
        {"value": about["value"], "metadata": about["metadata"]}
    )


def moved(text: str, later_ms: Callable[[dict[str, Any]], float]) -> str:
    """A line at another time."""
    about = json.loads(text.split(" ", 1)[1])
    return ":::MLLOG " + json.dumps(about | {"time_ms": about["time_ms"] + later_ms(about)})


LINES = log()
BESIDE = [moved(text, lambda about: 4000 * (about["key"] == "eval_stop")) for text in LINES]
WRITERS: dict[str, bytes] = {
    "crlf": "\r\n".join(LINES).encode(),
    "byte order mark": b"\xef\xbb\xbf" + "\n".join(LINES).encode(),
    "bad utf-8": b"\n\xff\xfe caf\xe9 :::\n".join(text.encode() for text in LINES),
    "rank's prefix": "\n".join(f" 3: {text}" for text in LINES).encode(),
    "all on one line": " ".join(LINES).encode(),
    "other programs": "\n".join(
        f'{text}\n[1,3]<stderr>: {{"key": "run_stop"}} 17%|##' for text in LINES
    ).encode(),
    "half-written lines": "\n".join(f"{text[:60]}{text}\n{text[:90]}" for text in LINES).encode(),
    "no white space": "\n".join(
        text.replace('": ', '":').replace(', "', ',"') for text in LINES
    ).encode(),
    "0.6": "\n".join(old(text) for text in LINES).encode(),
    "evaluations beside training": "\n".join(BESIDE).encode(),
    "starts from 0": "\n".join(log(first=0)).encode(),
    "many ranks": "\n".join(log(ranks=5)).encode(),
    "ranks out of order": "\n".join([*LINES[:4], *sorted(LINES[4:], key=len)]).encode(),
    "numbers as words": "\n".join(
        t.replace("4096", '"4096"').replace("1281167", '"1281167"') for t in LINES
    ).encode(),
    "steps in train_samples": "\n".join(text.replace("1281167", "312") for text in LINES).encode(),
    "no train_samples": "\n".join(text for text in LINES if "train_samples" not in text).encode(),
    "nan": "\n".join([*LINES, line("eval_accuracy", START, float("nan"), epoch_num=9)]).encode(),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_logs_of_many_writers_give_the_same_times(writer: str, tmp_path: Path) -> None:
    made = values(tmp_path, WRITERS[writer])
    check(made)
    assert made["status"] == "success"


def test_starts_from_0_and_ends_from_1(tmp_path: Path) -> None:
    zero, one = log(first=0), log()
    lines = [
        early if "epoch_start" in early else text for early, text in zip(zero, one, strict=True)
    ]
    assert '"epoch_num": 0}' in lines[5]
    check(values(tmp_path, lines))


def test_blocks_where_there_are_no_epochs(tmp_path: Path) -> None:
    lines, at = [line("run_start", START)], START
    for first in (1, 5, 9):
        lines.append(line("block_start", at, first_epoch_num=first, epoch_count=4))
        at += 4 * EPOCH_MS
        lines.append(line("block_stop", at, first_epoch_num=first))
        at += EVAL_MS
    made = values(tmp_path, [*lines, line("run_stop", at, status="success")])
    assert (made["throughput_images_per_s"], made["clocks"]) == (pytest.approx(RATE), "blocks")


def test_marks_of_queued_work_are_not_believed(tmp_path: Path) -> None:
    """Epochs that fill a fifth of their blocks were marked when work was queued: the rate was five
    times too high.
    """
    lines, at = [line("run_start", START)], START
    for first in range(1, 13, 4):
        lines.append(line("block_start", at, first_epoch_num=first, epoch_count=4))
        for epoch in range(first, first + 4):
            lines.append(line("epoch_start", at, epoch_num=epoch))
            at += EPOCH_MS // 5
            lines.append(line("epoch_stop", at, epoch_num=epoch))
        at += 4 * (EPOCH_MS - EPOCH_MS // 5)
        lines += [
            line("block_stop", at, first_epoch_num=first),
            line("eval_start", at, epoch_num=first + 3),
        ]
        at += EVAL_MS
        lines += [
            line(key, at, 0.76, epoch_num=first + 3) for key in ("eval_stop", "eval_accuracy")
        ]
    made = values(tmp_path, [*lines, line("run_stop", at, status="success")])
    assert (made["throughput_images_per_s"], made["clocks"]) == (pytest.approx(RATE), "blocks")


@pytest.mark.parametrize("factor", [5, 0.2])
def test_a_rate_that_the_run_contradicts_is_none(factor: float, tmp_path: Path) -> None:
    """The counts of accuracies say what was trained; those of blocks are several times more, or
    less.
    """
    lines, at = [line("run_start", START)], START
    for first in range(1, 13, 4):
        lines.append(line("block_start", at, first_epoch_num=first, epoch_count=4 * factor))
        at += 4 * EPOCH_MS
        lines += [
            line("block_stop", at, first_epoch_num=first),
            line("eval_accuracy", at, 0.3, epoch_num=first + 3),
        ]
    lines += [line("run_stop", at, status="success"), line("run_stop", at, status="aborted")]
    place(tmp_path, [*lines, lines[-2]])
    collect(mlperf.find(tmp_path), tmp_path / "tables", read=mlperf.read)
    (run,) = pd.read_parquet(tmp_path / "tables/runs.parquet").to_dict("records")
    assert pd.isna(run["throughput_images_per_s"]) and run["train_s"] == pytest.approx(120)
    found = audit(material.of_study(tmp_path / "tables"), ["rate-of-the-run", "ended-as-said"])
    assert [(row["severity"], row["rule"]) for row in found] == [
        ("error", "rate-of-the-run"),
        ("error", "ended-as-said"),
        ("error", "ended-as-said"),
    ]
    assert "aborted; success" in found[1]["evidence"] and "0.3" in found[2]["evidence"]


def test_ends_that_nobody_can_believe_are_flagged(tmp_path: Path) -> None:
    """Success at 0.50 or without an accuracy, 76 % after four epochs, one of five results; and what
    to do with them.
    """
    place(tmp_path, [text.replace("0.76", "0.5") for text in LINES], org="half")
    place(tmp_path, [text for text in LINES if "eval_accuracy" not in text], org="none")
    for number in range(5):
        path = place(tmp_path, LINES, org="soon", name=f"n{number}")
        path.rename(path.with_name(f"result_{number}.txt"))
    collect(mlperf.find(tmp_path), tmp_path / "tables", read=mlperf.read)
    rcp = ROOT / "config/references/mlperf-rcp-resnet50.csv"
    found = audit(material.of_study(tmp_path / "tables", rcp))
    for rule, orgs in (
        ("ended-as-said", {"half", "none"}),
        ("convergence", {"soon"}),
        ("five-results", {"half"}),
    ):
        assert orgs <= {row["runs"].split("-")[0] for row in found if row["rule"] == rule}, rule
    assert "not checked" not in {row["severity"] for row in found}
    assert not [
        row for row in found if "again" in row["what_to_do"] and row["what_to_do"] != OF_OTHERS
    ]


def test_samples_where_epochs_are_not_counted(tmp_path: Path) -> None:
    lines, at = [line("run_start", START)], START
    for count in (1000, 2000, 3000):
        at += EPOCH_MS
        lines.append(line("eval_start", at, samples_count=count))
        at += EVAL_MS
        lines.append(line("eval_stop", at, samples_count=count))
    made = values(tmp_path, [*lines, line("run_stop", at, status="success")])
    assert (made["throughput_images_per_s"], made["clocks"]) == (
        pytest.approx(100.0),
        "evaluations",
    )


@pytest.mark.parametrize("stop", [None, "aborted"])
def test_a_run_without_a_successful_end_has_no_speed(stop: str | None, tmp_path: Path) -> None:
    made = values(tmp_path, log(stop=stop))
    assert made["status"] == stop  # of submissions
    assert "throughput_images_per_s" not in made
    assert missing(made["why"]["train_s"], "did not end") == []


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    with refuses(RefusedError, "MLPerf"):
        mlperf.read(place(tmp_path, b"\x00" * 1000))
    with pytest.raises(RefusedError, match="more than one training"):
        again = [text.replace("16500", "16600") for text in LINES]
        mlperf.read(place(tmp_path, [*LINES, *again], name="two"))
    path = place(tmp_path, LINES, name="lost")
    (tmp_path / "Org/systems/lost.json").write_text('{"number of nodes" : "2", }')
    with refuses(RefusedError, "accelerators"):
        mlperf.read(path)


MANY, HUGE = "9" * 5000, "1" + "0" * 400
WORST = {
    "none": "null",
    "text": '"many"',
    "list": "[]",
    "nan": "NaN",
    "huge": HUGE,
    "many digits": MANY,
    "-": "-5",
}


def with_value(key: str, name: str, value: str) -> list[str]:
    """The log with this JSON for `name` in the first line of this key."""
    number = next(n for n, text in enumerate(LINES) if f'"key": "{key}"' in text)
    about = json.loads(LINES[number].split(" ", 1)[1])
    (about["metadata"] if name == "epoch_num" else about)[name] = "@"
    bad = ":::MLLOG " + json.dumps(about).replace('"@"', value)
    return [*LINES[:number], bad, *LINES[number + 1 :]]


SPOILED = {
    **{
        f"batch {name}": with_value("global_batch_size", "value", bad)
        for name, bad in WORST.items()
    },
    **{
        f"batch {value}": with_value("global_batch_size", "value", value)
        for value in ("0", "2", "2.5", "2000000")
    },
    "another": with_value("submission_benchmark", "value", '"ssd"'),
    "accuracy in percent": with_value("eval_accuracy", "value", "76.1"),
    "samples": with_value("train_samples", "value", HUGE),
    **{
        f"time {v[:9]}": with_value("epoch_stop", "time_ms", v) for v in (HUGE, MANY, "1e300", "-5")
    },
    **{
        f"epoch {v[:9]}": with_value("eval_accuracy", "epoch_num", v)
        for v in (HUGE, MANY, "1e300", "5000000", "-1")
    },
    **{
        key: [*LINES, line(key, START, "4")] for key in ("number_of_nodes", "accelerators_per_node")
    },
}
SYSTEMS = {**{v[:9]: v for v in (HUGE, MANY, "1000000", "-8", "2.5", "1,024")}, "deep": "[" * 9999}


@pytest.mark.filterwarnings("ignore:overflow")
def test_logs_that_cannot_be_true_are_refused_by_name_and_no_other(tmp_path: Path) -> None:
    for name, lines in SPOILED.items():
        place(tmp_path, lines, org=name)
    for name, nodes in SYSTEMS.items():
        path = place(tmp_path, LINES, org=f"nodes {name}").parents[3] / "systems/box_n1_fw.json"
        path.write_text(f'{{"number_of_nodes": {nodes}, "accelerators_per_node": 8}}')
    collect(mlperf.find(place(tmp_path, LINES).parents[4]), tmp_path / "tables", read=mlperf.read)
    assert pd.read_parquet(tmp_path / "tables/runs.parquet")["run"].tolist() == [
        "Org-box_n1_fw-resnet-result_0"
    ]
    refused = pd.read_parquet(tmp_path / "tables/refused.parquet").set_index("file")
    assert {Path(file).parents[3].name for file in refused.index} == {
        *SPOILED,
        *(f"nodes {name}" for name in SYSTEMS),
    }
    assert not refused["what"].str.contains("Error").any(), refused[
        "what"
    ].tolist()  # none is a crash


def test_a_log_without_a_batch_leaves_it_null_in_every_table(tmp_path: Path) -> None:
    place(tmp_path, [text for text in LINES if "global_batch_size" not in text])
    place(tmp_path, LINES, org="Other")
    assert collect(mlperf.find(tmp_path), tmp_path / "tables", read=mlperf.read) == []
    assert pd.read_parquet(tmp_path / "tables/costs.parquet")["global_batch"].isna().sum() == 1


def test_words_that_are_no_text_reach_no_table(tmp_path: Path) -> None:
    path = place(tmp_path, [*LINES, line("opt_name", START, "a\ud800b\n")])
    system = path.parents[3] / "systems/box_n1_fw.json"
    system.write_text(system.read_text().replace('"F"', '"\\ud800"'))
    assert collect([path], tmp_path / "tables", read=mlperf.read) == []
    (run,) = pd.read_parquet(tmp_path / "tables/runs.parquet").to_dict("records")
    assert (run["framework"], run["optimizer"]) == ("\\ud800", "a\\ud800b\\n")


def test_a_clock_that_was_set_back_leaves_no_time(tmp_path: Path) -> None:
    lines = [
        text.replace("16500", "16499") if n > len(LINES) // 2 else text
        for n, text in enumerate(LINES)
    ]
    made = values(tmp_path, lines)
    assert "train_s" not in made and made["clock_back_s"] > 9000
    assert made["throughput_images_per_s"] == pytest.approx(RATE, rel=1e-3)


def tables(folder: Path, **said: float) -> Path:
    """Tables of two systems, the second 4 times as large and 3 times as fast; and a broken log."""
    for nodes, rate in ((1, "small"), (4, "large")):
        lines = log(said.get(rate))
        if nodes == 4:
            lines = [
                moved(text, lambda about: (START - about["time_ms"]) * 2 / 3) for text in lines
            ]
        place(folder, lines, nodes)
    place(folder, b"nothing", org="Other")
    collect(mlperf.find(folder, ["resnet"]), folder / "tables", read=mlperf.read)
    return folder / "tables"


def test_a_log_of_another_name_is_named_as_not_read(tmp_path: Path) -> None:
    result = place(tmp_path, log())
    for name in ("result-1.txt", "results_2.txt", "result_3.log", "run_4.out", "Result_5.txt"):
        result.with_name(name).write_bytes(result.read_bytes())
    result.with_name("notes.txt").write_text("no log")
    result.with_name("README.md").write_text(LINES[0])
    collect(mlperf.find(tmp_path), tmp_path / "tables", read=mlperf.read)
    refused = pd.read_parquet(tmp_path / "tables/refused.parquet")
    assert len(refused) == 5 and refused["what"].str.contains("name").all()
    assert len(pd.read_parquet(tmp_path / "tables/runs.parquet")) == 1


def test_unet3d_may_count_samples_in_place_of_epochs(tmp_path: Path) -> None:
    """4000 passes over 168 samples in 4 evaluations, counted as `epoch_num`."""
    lines = [text.replace("4096", "32") for text in log() if '"epoch_st' not in text]
    for number in range(1, EPOCHS + 1):
        lines = [
            text.replace(f'"epoch_num": {number}}}', f'"epoch_num": {number * 168_000}}}')
            for text in lines
        ]
    path = place(tmp_path, lines)
    moved_to = path.parent.with_name("unet3d")
    path.parent.rename(moved_to)
    made = mlperf.read(moved_to / path.name)
    assert made is not None
    assert made["submissions"][0]["seen_samples"] == EPOCHS * 168_000
    assert made["submissions"][0]["clocks"] == "evaluations"
    with pytest.raises(RefusedError, match="how much was trained"):
        mlperf.read(place(tmp_path / "resnet", lines))


def test_records_of_others_are_not_paired_by_the_numbers_of_their_files() -> None:
    """Five results of two systems each, whose ratios lie within 5.8 to 6.2, whatever number a file
    has.
    """
    sides = {8: [100.0, 101.0, 99.0, 100.5, 99.5], 32: [597.0, 603.0, 600.0, 594.0, 606.0]}
    rows = [
        row(rate, workers=workers, repeat=repeat)
        | {"run": f"{workers}-{repeat}", "loader": None, "records": "mlperf"}
        for workers, rates in sides.items()
        for repeat, rate in enumerate(rates, 1)
    ]
    runs = frame("runs", rows)
    table = scaling.scaling(runs).set_index("workers")
    low, middle, high = (table.loc[32, f"speed_up{end}"] for end in ("_low", "", "_high"))
    assert 5.8 < low < middle < high < 6.2
    turned = scaling.scaling(runs.assign(repeat=[*range(5, 0, -1), *range(1, 6)])).set_index(
        "workers"
    )
    assert turned.loc[32, "speed_up_low"] == pytest.approx(low)


def test_figures_show_one_series_of_a_submitter_whatever_its_batch(tmp_path: Path) -> None:
    made = tables(tmp_path)
    assert pd.read_parquet(made / "refused.parquet")["what"].str.contains(
        "no MLPerf line"
    ).tolist() == [True]
    options = Options("", "accelerator", "", target=0.75)
    for plot, column in (("efficiency", "efficiency"), ("time-to-accuracy", "reached_s")):
        write_data(plot, made, selected(made), tmp_path / f"{plot}.csv", options)
        rows = pd.read_csv(tmp_path / f"{plot}.csv")
        assert rows["workers"].tolist() == [8, 32]
        assert rows[column].tolist() == pytest.approx(
            [1.0, 0.75] if plot == "efficiency" else [49.0, 49.0 / 3]
        )


def test_the_audit_says_where_a_log_and_its_clocks_disagree(tmp_path: Path) -> None:
    found = audit(
        material.of_study(tables(tmp_path, small=RATE / 8, large=3.05 * RATE)), ["said-rates"]
    )
    (finding,) = [row for row in found if row["severity"] == "error"]
    assert finding["runs"] == "Org-box_n1_fw-resnet-result_0"
    assert "0.125 times" in finding["evidence"]


def test_a_large_log_is_read_in_halves_without_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = place(
        tmp_path, "\n".join(log(said_rate=RATE, ranks=3) * 40).encode() + b"\n" + b"x" * 5000
    )
    whole = _mllog.read(path)
    times = _times.times(whole, "resnet")
    monkeypatch.setattr(_mllog, "LARGE", 1)
    monkeypatch.setattr(_mllog, "ROWS", 30)
    monkeypatch.setattr(_mllog, "BLOCK", 777)
    halves = _mllog.read(path)
    assert (halves.lines, halves.keys, halves.status) == (whole.lines, whole.keys, "success")
    assert halves.lines == 40 * len(log(said_rate=RATE, ranks=3))
    assert halves.damaged == whole.damaged == 0
    assert _times.times(halves, "resnet").clock_rate == times.clock_rate
    assert 0 < len(halves.marks["epoch_start"].rows) < len(whole.marks["epoch_start"].rows)
    assert list(halves.rates["throughput"]) == list(whole.rates["throughput"])


@pytest.mark.parametrize("what", ["log", "system"])
def test_what_is_no_regular_file_is_refused(tmp_path: Path, what: str) -> None:
    path = place(tmp_path, log())
    spoiled = path if what == "log" else next((tmp_path / "Org/systems").iterdir())
    spoiled.unlink()
    os.mkfifo(spoiled)
    refused = collect([path], tmp_path / "tables", read=mlperf.read)
    assert "regular file" in refused[0]["what"]


def test_texts_of_any_length_are_cut_and_said(tmp_path: Path) -> None:
    path = place(tmp_path, [*log(stop=None), line("run_stop", START + 109_000, status="success")])
    system = next((tmp_path / "Org/systems").iterdir())
    about = json.loads(system.read_text())
    system.write_text(
        json.dumps(about | {"framework": "=f" * 100_000, "accelerator_model_name": "A" * 200_000})
    )
    assert collect([path], tmp_path / "tables", read=mlperf.read) == []
    (row,) = files.read_csv(tmp_path / "tables/runs.csv")
    assert row["framework"].startswith("=f=f") and row["framework"].endswith(
        "... (200000 characters)"
    )
    assert len(row["gpu"]) < 300
