"""Records that cannot be true: each is refused by name, is in no table, and keeps no other run from
its tables.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import pytest
from ddlbench.analysis import refusals, slow_nodes, summary, tables
from ddlbench.analysis.collect import collect, columns_of, rows_of
from ddlbench.analysis.refusals import RefusedError
from ddlbench.analysis.sheets import Costs
from ddlbench.analysis.tables import TABLES, frame
from ddlbench.core.mllog import events
from ddlbench.core.record import MLLOG, STEPS
from ddlbench.core.step_rows import STEP_PARTS
from ddlbench.plan import estimate, stale
from ddlbench.records import ours
from ddlbench.records.ours import record
from ddlbench.run import hold
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow.parquet import ParquetFile

from tests.builders.records import (
    RANKS,
    SPEC,
    edit_log,
    fit_log,
    replace_steps,
    seal_again,
    write_record,
)
from tests.facts import missing
from tests.unit.made_up import FEW, spoilt

OTHER = replace(SPEC, repeat=2)


def refused(tmp_path: Path, folder: Path) -> str:
    """What is said of this record, which is collected beside a good one: `<file>: <what>`."""
    (said,) = all_refused(tmp_path, [folder])
    return said


def all_refused(tmp_path: Path, folders: Sequence[Path]) -> list[str]:
    """What is said of each of these records, which are collected at once beside a good one:
    `<file>: <what>`.
    """
    good = write_record(tmp_path / "good", replace(SPEC, machine="good"))
    rows = collect([*folders, good], tmp_path / "tables")
    tables = {name: pd.read_parquet(tmp_path / f"tables/{name}.parquet") for name in TABLES}
    names = {folder.name for folder in folders}
    assert len(names) == len(folders)
    assert {row["run"] for row in rows} == set(tables["refused"]["run"]) == names
    assert len(rows) == len(tables["refused"]) == len(folders)
    assert set(tables["runs"]["run"]) == set(tables["epochs"]["run"]) == {good.name}
    for name, table in tables.items():
        ids = table["run"] if "run" in table else table["runs"].str.split().explode()
        assert name == "refused" or names & set(ids) == set()
    lines = "\n".join(refusals.lines(rows))
    of_run = {row["run"]: row for row in rows}
    for folder in folders:
        row = of_run[folder.name]
        assert Path(row["file"]).parent == folder
        assert "move" in row["what_to_do"] and str(folder) in row["what_to_do"]
        assert f"{row['file']}: {row['what']}" in lines
    return [f"{Path(of_run[f.name]['file']).name}: {of_run[f.name]['what']}" for f in folders]


Harm = Callable[[Path], object]


def assert_refused(tmp_path: Path, harms: Mapping[str, tuple[Harm, str]]) -> None:
    """A record is harmed in each of these ways. All are refused, and what is said of each begins as
    expected.
    """
    folders = [
        write_record(tmp_path / "runs", replace(SPEC, machine=f"m{n}")) for n in range(len(harms))
    ]
    for folder, (harm, _) in zip(folders, harms.values(), strict=True):
        harm(folder)
    said = dict(zip(harms, all_refused(tmp_path, folders), strict=True))
    assert {
        name: said[name]
        for name, (_, expected) in harms.items()
        if not said[name].startswith(expected)
    } == {}


def add(folder: Path, key: str, value: object = None, **metadata: object) -> None:
    """One more line at the end of a log, as if the run had been so."""
    line = {"key": key, "value": value, "metadata": metadata, "time_ms": 99_000}
    with (folder / MLLOG).open("a") as log:
        log.write(f":::MLL {json.dumps(line)}\n")
    seal_again(folder)


def whole_record(folder: Path, other: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(other, folder)


def unreadable_table(folder: Path, other: Path) -> None:
    data = (folder / STEPS).read_bytes()
    (folder / STEPS).write_bytes(data[:-20] + bytes(20))
    seal_again(folder)


# Files of another run, or damaged ones: what spoils a record by another, and what is said.
FILES: list[tuple[Callable[[Path, Path], object], str]] = [
    (whole_record, f"run.mllog: .* {OTHER.id}$"),
    (
        lambda folder, other: shutil.copy(other / MLLOG, folder / MLLOG),
        "run.mllog: .*another run",
    ),
    # As many steps, of as many images.
    (
        lambda folder, other: (
            pd.read_parquet(other / STEPS).assign(data_wait_s=0.0).to_parquet(folder / STEPS)
        ),
        ".*the file was changed",
    ),
    (unreadable_table, r"steps.parquet: cannot be read \("),
    (
        lambda folder, _: (folder / STEPS).unlink(),
        "steps.parquet: is missing, and the log says its SHA-256$",
    ),
]


@pytest.mark.parametrize(("harm", "what"), FILES)
def test_files_of_another_run_or_damaged_ones(
    tmp_path: Path, harm: Callable[[Path, Path], object], what: str
) -> None:
    folder = write_record(tmp_path)
    harm(folder, write_record(tmp_path / "other", OTHER))
    assert re.match(what, refused(tmp_path, folder))


STEPS_CASES: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "data_wait_s is nan in 1 rows; allowed: finite seconds, at least 0": lambda s: s.assign(
        data_wait_s=s["data_wait_s"].where(s.index != 3)
    ),
    "forward_s is -5.0 in 8 rows": lambda s: s.assign(forward_s=-5.0),
    "optimizer_s is inf in 8 rows": lambda s: s.assign(optimizer_s=float("inf")),
    "communication_s is -0.1 in 8 rows": lambda s: s.assign(communication_s=-0.1),
    "lr is -1.0 in 8 rows": lambda s: s.assign(lr=-1.0),
    "has a loss that is not a finite number": lambda s: s.assign(loss=float("nan")),
    "has steps of 1 ranks, the run had 2 workers": lambda s: s[s["rank"] == 0],
    "has steps of 1 epochs, the run had 2": lambda s: s[s["epoch"] == 0],
    "epoch 0 has 12 images over all ranks, train_samples is 16": lambda s: s.drop(index=0),
    "has a step of a rank more than once": lambda s: s.assign(step=s["step"].replace(1, 0)),
    "has 4 steps in 2 epochs; expected: 2 an epoch on each of 2 ranks": lambda s: s[
        s["step"] % 2 == 0
    ].assign(images=8),
    "has steps whose global batch is not 8 images": lambda s: s.assign(
        images=s["images"].where(s["epoch"] > 0, 3 + 2 * s["step"])
    ),
    "has no column forward_s, end_s": lambda s: s.drop(columns=["forward_s", "end_s"]),
    "the parts of step 1 on rank 0 do not sum to its end time": lambda s: s.assign(
        **(s[[*STEP_PARTS]] / 10)
    ),
    "the parts of step 2 on rank 1 do not sum to its end time": lambda s: s.assign(
        forward_s=s["forward_s"]
        + 5 * ((s["step"] == 2) & (s["rank"] == 1))  # longer than the time since step 1
    ),
    "the parts of step 3 on rank 1 do not sum to its end time": lambda s: s.assign(
        backward_s=s["backward_s"].where((s["step"] < 3) | (s["rank"] == 0), 0.0)
    ),
}


def test_steps_that_cannot_be(tmp_path: Path) -> None:
    def harm(change: Callable[[pd.DataFrame], pd.DataFrame]) -> Harm:
        return lambda folder: replace_steps(folder, change(pd.read_parquet(folder / STEPS)))

    assert_refused(
        tmp_path,
        {what: (harm(change), f"steps.parquet: {what}") for what, change in STEPS_CASES.items()},
    )


@pytest.mark.parametrize("paused", [False, True])
def test_a_checkpoint_takes_time_between_two_steps(tmp_path: Path, paused: bool) -> None:
    folder = write_record(tmp_path, **({"checkpoint": 3} if paused else {}))
    steps = pd.read_parquet(folder / STEPS)
    steps = steps.assign(end_s=steps["end_s"] + 2.5 * (steps["step"] >= 3))
    steps.to_parquet(folder / STEPS)
    fit_log(folder, steps)
    assert len(collect([folder], tmp_path / "tables")) == (not paused)


def at_ms(text: str, key: str, epoch: int | None, move_s: float) -> str:
    """A log in which one event is later."""
    lines = text.splitlines(keepends=True)
    number = f'"epoch_num": {epoch}' if epoch else '"metadata"'
    (place,) = [n for n, line in enumerate(lines) if f'"key": "{key}"' in line and number in line]
    before = re.search(r'"time_ms": (\d+)', lines[place])
    assert before
    lines[place] = lines[place].replace(
        before[0], f'"time_ms": {int(before[1]) + round(1e3 * move_s)}'
    )
    return "".join(lines)


def moved(*events: tuple[str, int | None], by_s: float) -> Callable[[Path], None]:
    """These events of a log are later."""

    def change(folder: Path) -> None:
        text = (folder / MLLOG).read_text()
        for key, epoch in events:
            text = at_ms(text, key, epoch, by_s)
        (folder / MLLOG).write_text(text)
        seal_again(folder)

    return change


def faster(share: float) -> Callable[[Path], None]:
    """All parts of all steps, and their clock, are shorter."""

    def change(folder: Path) -> None:
        steps = pd.read_parquet(folder / STEPS)
        times = [*STEP_PARTS, "end_s"]
        replace_steps(folder, steps.assign(**(steps[times] * share).astype("float32")))

    return change


AFTER_1 = (("epoch_stop", 1), ("eval_start", 1), ("eval_stop", 1))
ALL_2 = (
    ("epoch_start", 2),
    ("epoch_stop", 2),
    ("eval_start", 2),
    ("eval_stop", 2),
    ("run_stop", None),
)
# What clocks say that do not fit each other, and the file that is named.
CLOCKS: dict[str, tuple[Callable[[Path], None], str]] = {
    "steps a fifth shorter than their epochs": (faster(0.8), "steps.parquet: steps of epoch 1"),
    "steps a fifth longer than their epochs": (faster(1.2), "steps.parquet: steps of epoch 1"),
    "steps divided by a million": (faster(1e-6), "steps.parquet: steps of epoch 1"),
    "no time at all": (faster(0.0), "steps.parquet: steps of epoch 1"),
    "an elapsed time of nothing": (
        lambda f: add_before_end(f, 1e-9),
        "run.mllog: ddlbench_elapsed_s",
    ),
    "an elapsed time of a day": (
        lambda f: add_before_end(f, 86_400),
        "run.mllog: ddlbench_elapsed_s",
    ),
    "an epoch that ends late": (
        moved(*AFTER_1, *ALL_2, by_s=2.0),
        "steps.parquet: steps of epoch 1",
    ),
    "a late end of the run": (
        moved(("run_stop", None), by_s=9.0),
        "run.mllog: epochs and validations do not account for 9 s",
    ),
    "a pause between two epochs": (
        moved(*ALL_2, by_s=9.0),
        "steps.parquet: what comes after the last step",
    ),
    "an epoch within a validation": (
        moved(("eval_stop", 1), by_s=1.0),
        "run.mllog: epoch_start of epoch 2 is earlier than eval_stop of epoch 1",
    ),
    "an epoch that does not begin": (
        lambda f: edit_log(f, '"epoch_start"', '"epoch_begin"'),
        "run.mllog: has epoch_s",
    ),
}


def add_before_end(folder: Path, elapsed_s: float) -> None:
    """The run says how long it took."""
    lines = (folder / MLLOG).read_text().splitlines(keepends=True)
    line = {"key": "ddlbench_elapsed_s", "value": elapsed_s, "metadata": {}, "time_ms": 17_600}
    lines.insert(-2, f":::MLL {json.dumps(line)}\n")
    (folder / MLLOG).write_text("".join(lines))
    seal_again(folder)


def test_clocks_that_do_not_fit(tmp_path: Path) -> None:
    assert_refused(tmp_path, CLOCKS)


def test_clocks_that_differ_as_clocks_do(tmp_path: Path) -> None:
    folders = [write_record(tmp_path / "a"), write_record(tmp_path / "b", replace(SPEC, repeat=2))]
    faster(0.995)(folders[0])  # a device's clock
    add_before_end(folders[1], 16.55)
    moved(("run_stop", None), by_s=0.4)(folders[1])
    assert collect(folders, tmp_path / "tables") == []


def test_a_stop_of_a_run_is_in_the_log_and_not_in_its_steps(tmp_path: Path) -> None:
    folder = write_record(tmp_path, resumed={"step": 3, "elapsed_s": 15.1})
    late = (("epoch_stop", 2), ("eval_start", 2), ("eval_stop", 2), ("run_stop", None))
    moved(*late, by_s=3_600.0)(folder)
    add_before_end(folder, 16.6)
    assert collect([folder], tmp_path / "tables") == []


def test_a_checkpoint_between_two_epochs_takes_time(tmp_path: Path) -> None:
    folder = write_record(tmp_path, checkpoint=2)
    steps = pd.read_parquet(folder / STEPS)
    replace_steps(folder, steps.assign(end_s=steps["end_s"] + 60.0 * (steps["epoch"] > 0)))
    moved(*ALL_2, by_s=60.0)(folder)
    assert collect([folder], tmp_path / "tables") == []


def test_rounding_below_zero_is_no_fault(tmp_path: Path) -> None:
    folder = write_record(tmp_path)
    steps = pd.read_parquet(folder / STEPS)
    replace_steps(
        folder,
        steps.assign(forward_s=steps["forward_s"] + steps["optimizer_s"], optimizer_s=-1e-17),
    )
    assert collect([folder], tmp_path / "tables") == []


EVENTS_CASES: dict[str, tuple[str, object, dict[str, object]]] = {
    "ddlbench_elapsed_s is -5; allowed: finite seconds, at least 0": ("ddlbench_elapsed_s", -5, {}),
    "ddlbench_elapsed_s is nan": ("ddlbench_elapsed_s", float("nan"), {}),
    "ddlbench_elapsed_s is ten": ("ddlbench_elapsed_s", "ten", {}),
    "ddlbench_epoch_start_s of epoch 1 is -1": ("ddlbench_epoch_start_s", -1, {"epoch_num": 1}),
    "ddlbench_skipped_steps is -1": ("ddlbench_skipped_steps", -1, {}),
    "ddlbench_flops_per_image is 1.5": ("ddlbench_flops_per_image", 1.5, {}),
    "ddlbench_flops_per_image is 9223372036854775808": (
        "ddlbench_flops_per_image",
        2**63,
        {},
    ),  # one more than fits
    "ddlbench_ranks: rank 0 has host_energy_j -30.0": (
        "ddlbench_ranks",
        [RANKS[0] | {"host_energy_j": -30.0}, RANKS[1]],
        {},
    ),
    "goes on after its end: eval_accuracy after run_stop success": (
        "eval_accuracy",
        0.5,
        {"epoch_num": 2},
    ),
    "ends twice: run_stop success, and later run_stop success": (
        "run_stop",
        None,
        {"status": "success"},
    ),
    "starts twice": ("run_start", None, {}),
    "names more than one run in ddlbench_spec": ("ddlbench_spec", None, {}),
    "seed is 17, and 1 in ddlbench_spec": ("seed", 17, {}),
    "global_batch_size is 9, and 8 in ddlbench_spec": ("global_batch_size", 9, {}),
    "train_samples is -16; allowed: a whole number above 0": ("train_samples", -16, {}),
}


def with_event(folder: Path, key: str, value: object, metadata: dict[str, object]) -> None:
    """The record's log has one more line of this key."""
    if key == "run_start":
        edit_log(folder, '"run_stop"', '"run_start"')
    elif key == "ddlbench_spec":
        value = json.loads(replace(SPEC, loader_threads=7).to_json())
        text = (folder / MLLOG).read_text()
        (folder / MLLOG).write_text("")
        add(folder, key, value)
        (folder / MLLOG).write_text((folder / MLLOG).read_text() + text)
        seal_again(folder)
    else:
        add(folder, key, value, **metadata)


def test_events_that_cannot_be(tmp_path: Path) -> None:
    def harm(*event: Any) -> Harm:
        return lambda folder: with_event(folder, *event)

    assert_refused(
        tmp_path,
        {what: (harm(*event), f"run.mllog: {what}") for what, event in EVENTS_CASES.items()},
    )


RUN_STOP = '"time_ms": 17600, "event_type": "INTERVAL_END", "key": "run_stop"'
EVAL_STOP = RUN_STOP.replace("run_stop", "eval_stop")
LOG_CASES = {
    "eval_accuracy of epoch 1 is 99; allowed: 0 to 1": (
        '"eval_accuracy", "value": 0.5',
        '"eval_accuracy", "value": 99',
    ),
    "eval_accuracy of epoch 1 is -0.5": (
        '"eval_accuracy", "value": 0.5',
        '"eval_accuracy", "value": -0.5',
    ),
    "tracked_stats of epoch 1: correct_top5 / seen is 2.0": (
        '"correct_top5": 3',
        '"correct_top5": 8',
    ),
    "tracked_stats of epoch 1: correct is 2, more than correct_top5, 1": (
        '"correct_top5": 3',
        '"correct_top5": 1',
    ),
    "tracked_stats of epoch 1: loss is inf": ('"loss": 1.0', '"loss": Infinity'),
    "has epoch_start of epochs 1, 1; expected: each of 1 to 2 once": (
        '"epoch_num": 2',
        '"epoch_num": 1',
    ),
    "eval_stop of epoch 2 is earlier than its eval_start": (
        EVAL_STOP,
        EVAL_STOP.replace("17600", "9000"),
    ),
    "run_stop is earlier than its run_start: the clock was set back": (
        RUN_STOP,
        RUN_STOP.replace("17600", "500"),
    ),
    "run_stop has time -0.001": (RUN_STOP, RUN_STOP.replace("17600", "-1")),
    "has a run_stop without a run_start before it": ('"run_start"', '"run_never"'),
    "cannot be understood (KeyError: 'time_ms')": (
        RUN_STOP,
        RUN_STOP.replace("time_ms", "time_us"),
    ),
    "cannot be understood (ValueError: ": ('"workers": 2', '"werkers": 2'),
    "cannot be understood (ModuleNotFoundError: ": ('"loader": "native"', '"loader": "naive"'),
    "train_samples is None": ('"train_samples"', '"train_pictures"'),
    "has no ddlbench_spec": ('"ddlbench_spec"', '"spec"'),
}


def test_logs_that_cannot_be(tmp_path: Path) -> None:
    def harm(before: str, after: str) -> Harm:
        return lambda folder: edit_log(folder, before, after)

    assert_refused(
        tmp_path, {what: (harm(*texts), f"run.mllog: {what}") for what, texts in LOG_CASES.items()}
    )


def test_a_failed_log_with_a_later_success(tmp_path: Path) -> None:
    folder = write_record(tmp_path, status="aborted")
    add(folder, "run_stop", status="success")
    assert (
        missing(refused(tmp_path, folder), "run.mllog: ", "run_stop aborted", "run_stop success")
        == []
    )


def test_an_empty_log_and_one_of_bytes(tmp_path: Path) -> None:
    folder = write_record(tmp_path)
    for text in (
        b"",
        bytes(range(256)) * 9,
        b":::MLL {}\n",
        b":::MLL []\n",
        b':::MLL {"key": {}, "time_ms": "x"}\n',
    ):
        (folder / MLLOG).write_bytes(text)
        assert [row["file"] for row in collect([folder], tmp_path / "tables")] == [
            str(folder / MLLOG)
        ]


@pytest.fixture
def to_spoil(tmp_path: Path) -> tuple[Path, list[str]]:
    """A record's folder, and the lines of its log."""
    folder = write_record(
        tmp_path, not_measured={"communication_s": "it reduces while it computes"}
    )
    add(folder, "ddlbench_epoch_start_s", 0.5, epoch_num=1)
    return folder, (folder / MLLOG).read_text().splitlines()


@pytest.mark.more
@settings(FEW, max_examples=200)
@given(data=st.data())
def test_whatever_stands_in_a_log_is_a_row_or_a_refusal(
    data: st.DataObject, to_spoil: tuple[Path, list[str]], tmp_path: Path
) -> None:
    folder, lines = to_spoil[0], [*to_spoil[1]]
    place = data.draw(st.integers(0, len(lines) - 1))
    event = json.loads(lines[place][lines[place].index("{") :])
    lines[place] = f":::MLL {json.dumps(spoilt(event, data))}"
    (folder / MLLOG).write_text("\n".join(lines) + "\n")
    seal_again(folder)
    try:
        believed = record(folder)
    except RefusedError as error:
        assert str(error).isprintable() and len(str(error)) < 300 + len(str(folder / MLLOG)) + 3
        return
    made = json.loads(json.dumps(summary.make(believed)))
    for name, sheet in TABLES.items():
        if not sheet.long:
            frame(name, rows_of(name, sheet, made, Costs()))  # has the types that it should
    with tables.writing("epochs", tmp_path) as write:
        write(columns_of("epochs", made))


def test_nothing_is_said_where_nothing_is_refused() -> None:
    assert refusals.lines([]) == []


def test_the_log_of_a_record_in_tests_is_one_that_a_run_writes(tmp_path: Path) -> None:
    keys = [event.key for event in events((write_record(tmp_path) / MLLOG).open())]
    assert keys.index("run_start") < keys.index("eval_start") < keys.index("run_stop")
    assert keys[-1] == "ddlbench_seal"


def fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def zeros(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("spoil", [fifo, zeros])
@pytest.mark.parametrize("name", [MLLOG, STEPS, ours.SUMMARY])
def test_what_is_no_regular_file_is_not_read(
    tmp_path: Path, spoil: Callable[[Path], None], name: str
) -> None:
    folder = write_record(tmp_path)
    spoil(folder / name)
    if name == ours.SUMMARY:
        assert collect([folder], tmp_path / "tables") == []
    else:
        assert "not a regular file" in refused(tmp_path, folder)


@pytest.mark.parametrize("spoil", [fifo, zeros])
def test_commands_do_not_wait_for_what_is_no_regular_file(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    folder = write_record(tmp_path / "runs")
    spoil(folder / MLLOG)
    assert estimate.read_measured(folder) is None
    stale.state(folder, SPEC, None, None)
    assert not stale.is_of_other_settings(folder / MLLOG, SPEC)
    assert hold.sound_events(folder, SPEC) is None
    _, count, said = slow_nodes.records("here", tmp_path / "runs")
    assert count == 0 and len(said) == 1


def test_steps_that_no_plan_has_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many, wide = (write_record(tmp_path / name) for name in ("many", "wide"))
    steps, read = pd.read_parquet(many / STEPS), ParquetFile.read

    def read_few(file: ParquetFile, **names: Any) -> Any:
        assert file.metadata.num_rows < 100
        assert file.metadata.row_group(0).total_byte_size < 1 << 20
        return read(file, **names)

    replace_steps(many, pd.concat([steps] * 100_000))
    replace_steps(wide, steps.assign(more="x"))
    monkeypatch.setattr(ParquetFile, "read", read_few)
    assert missing(refused(tmp_path / "a", many), 800000, "8 at most") == []
    assert collect([wide], tmp_path / "tables") == []  # columns that nobody knows are not read
    replace_steps(
        wide, steps.assign(more=[Random(n).randbytes(1 << 18) for n in range(len(steps))])
    )
    assert missing(refused(tmp_path / "b", wide), "its columns") == []
