"""How steps of a user's program are read: from lines, MLPerf's log, a Trainer's state, TensorBoard,
the recorder.
"""

import json
import os
import re
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ddlbench.core import registry
from ddlbench.core.program import READS
from ddlbench.run import log_text
from ddlbench.run.readings import Line, Output, Reading, UnreadError

from tests.facts import refuses
from tests.unit.programs import STEP, spec

RATE = r"step (?P<step>\d+) loss (?P<loss>\S+)(?: lr (?P<lr>\S+))? at (?P<samples_per_s>.+?) tok/s"


def source(
    folder: Path, texts: list[str], *patterns: str, every_s: float = 0.1, **more: Any
) -> Output:
    """A program of two ranks that printed these lines, one each 0.1 s from second 1000 on; its
    batch is 8.
    """
    own = folder / "program"
    own.mkdir(exist_ok=True)
    keys = {name: more.pop(name) for name in [*more] if name in READS}
    run = spec(folder, 2, **({"patterns": patterns or (STEP,)} | keys))
    printed = [Line(1000.0 + number * every_s, text) for number, text in enumerate(texts)]
    return Output(run, own, folder, printed, texts, **more)


def read(name: str, of: Output) -> Reading:
    made: Reading = registry.member("readings", name).read(of)
    return made


def taken(made: Reading) -> list[tuple[int, float]]:
    """Step and end [s] of each step on rank 0."""
    return [(row.step, round(row.end_s, 6)) for row in made.rows if row.rank == 0]


@pytest.mark.parametrize("first", [0, 1, 100])
@pytest.mark.parametrize("times", [1, 2])
def test_steps_count_from_anywhere_and_once(tmp_path: Path, first: int, times: int) -> None:
    texts = [f"step {first + step} loss {step}" for step in range(5)]
    made = read("lines", source(tmp_path, [text for text in texts for _ in range(times)]))
    assert taken(made) == [(step, pytest.approx(0.1 * times * (step + 1))) for step in range(4)]
    assert [row.loss for row in made.rows if row.rank == 1] == [0.5, 1.0, 1.5, 2.0]
    assert made.began_s == 1000.0
    assert {(row.images, row.communication_s) for row in made.rows} == {(4, None)}
    assert "recorder" in made.not_known["forward_s"]


def test_a_line_that_was_read_late_came_before_one_that_says_when_it_came(tmp_path: Path) -> None:
    """On a busy machine parts of steps did not sum to their ends, and the tables refused the
    record.
    """
    of = source(tmp_path, [f"step {step} loss 1" for step in range(9)])
    late = [line._replace(time_s=1000.9) if 3 <= n < 6 else line for n, line in enumerate(of.lines)]
    made = read("lines", replace(of, lines=late))
    mine = [row for row in made.rows if row.rank == 0]
    assert [round(row.end_s, 6) for row in mine] == [0.1, 0.2, 0.6, 0.6, 0.6, 0.6, 0.7, 0.8]
    assert sum(row.took_s for row in mine) == pytest.approx(mine[-1].end_s)
    back = [line._replace(time_s=line.time_s - 3600 * (line.time_s > 1000.4)) for line in of.lines]
    taken_back = taken(read("lines", replace(of, lines=back)))
    assert taken_back == [(n, pytest.approx(0.1 * (n + 1))) for n in range(8)]


def test_steps_told_now_and_then_share_the_time_between(tmp_path: Path) -> None:
    made = read("lines", source(tmp_path, [f"step {step} loss 1" for step in (10, 20, 25)]))
    assert taken(made) == [(n, pytest.approx(0.01 * (n + 1))) for n in range(10)] + [
        (n, pytest.approx(0.1 + 0.02 * (n - 9))) for n in range(10, 15)
    ]
    assert made.remarks["told_every_steps"] == 10
    assert made.remarks["told_steps"] == [[10, 1], [5, 1]]
    each = read("lines", source(tmp_path, [f"step {step} loss 1" for step in range(4)]))
    assert "told_steps" not in each.remarks


@pytest.mark.parametrize(
    ("told", "count"),
    [([0, 1, 2, 3] * 3, 11), ([1, 2, 3, 4] * 3, 11), ([0, 0, 1, 1, 2, 3, 2, 3, 4, 4], 4)],
)
def test_epochs_that_count_anew_and_ranks_that_print_in_turns(
    tmp_path: Path, told: list[int], count: int
) -> None:
    texts = [f"step {step} loss 1" for step in told]
    assert [step for step, _ in taken(read("lines", source(tmp_path, texts)))] == list(range(count))


def test_a_program_may_count_samples_in_place_of_steps(tmp_path: Path) -> None:
    """Two ranks of 4 samples each; the last batch of an epoch is smaller, so its line says less
    than the one before.
    """
    texts = [
        f"Train Epoch: {epoch} [{seen}/14 (0%)] Loss: 1"
        for epoch in (1, 2)
        for seen in (0, 4, 8, 6)
    ]
    made = read("lines", source(tmp_path, texts, r"\[(?P<seen>\d+)/.*Loss: (?P<loss>\S+)"))
    assert [(row.step, row.images) for row in made.rows if row.rank == 0] == [
        (step, 4) for step in range(7)
    ]


def test_an_interruption_takes_no_time_and_steps_made_again_count_once(tmp_path: Path) -> None:
    texts = [f"step {step} loss 1" for step in (0, 1, 2, 3, 2, 3, 4)]
    of = source(tmp_path, texts, again_s=[1000.35])
    assert taken(read("lines", of)) == [(0, 0.1), (1, 0.2), (2, 0.3), (3, 0.4)]


@pytest.mark.parametrize(
    ("rate", "agrees"),
    [
        ("80", True),
        ("0.08k", True),
        ("79.9", True),
        ("110", False),
        ("80,000", None),
        ("0.01M", None),
        ("8", None),
    ],
)
def test_a_rate_is_never_believed_against_the_clock(
    tmp_path: Path, rate: str, agrees: bool | None
) -> None:
    of = source(
        tmp_path,
        [f"step {step} loss 1 lr 1e-3 at {rate} tok/s" for step in range(6)],
        RATE,
        rate_of="all",
    )
    if agrees is None:
        with pytest.raises(UnreadError, match=r"its timestamps give 80: "):
            read("lines", of)
        return
    made = read("lines", of)
    said = made.remarks["printed_rate"]
    assert isinstance(said, dict)
    assert said["agrees"] is made.proof.proved is agrees
    assert said["by_clock_per_s"] == pytest.approx(80.0)
    assert {row.lr for row in made.rows} == {0.001}


TEXTS = [
    "1,234.5",
    "12'345",
    "1_000",
    "1.5k",
    "2.5M",
    "-3e-4",
    "62.5 %",
    "12.5ms",
    "1.5 ktok/s",
    "1.5k,",
    "0,898",
    "2.9,314",
    "1234,567",
    "12 Batches",
    "3,",
    "loss",
    "",
]
VALUES = [
    1234.5,
    12345.0,
    1000.0,
    1500.0,
    2.5e6,
    -3e-4,
    0.625,
    12.5,
    1500.0,
    1500.0,
    None,
    None,
    None,
    12.0,
    None,
    None,
    None,
]


@pytest.mark.parametrize(("text", "value"), [*zip(TEXTS, VALUES, strict=True)])
def test_numbers_as_people_print_them(text: str, value: float | None) -> None:
    assert log_text.number(text) == (pytest.approx(value) if value is not None else None)


CSV_LINE = r"^(?P<step>\d+),\d+,(?P<loss>[\d.]+)$"


@pytest.mark.parametrize(
    ("pattern", "text", "values"),
    [
        (CSV_LINE, "5,312,2.301", {"step": 5, "loss": 2.301}),
        (CSV_LINE, "5312,8,2.301", {"step": 5312, "loss": 2.301}),
        (r"^(?P<step>\d+).* (?P<loss>\S+)$", "5,312,408,x 2.5", {"step": 5312408, "loss": 2.5}),
        (r"^(?P<step>\d+)", "5,312,2.301", {"step": 5}),
        (r"^(?P<step>\d+)", "1234,567", {"step": 1234}),
        (r"\[(?P<epoch>\d+),(?P<step>\d+)\]", "[1,100] loss 2.5", {"epoch": 1, "step": 100}),
        (r"^\d+,(?P<loss>[\d.]+),(?P<step>\d+)$", "1,2.9,314", {"loss": 2.9, "step": 314}),
        (r"loss: (?P<loss>[\d.]+)", "loss: 0,898", {"loss": None}),
        (r"loss: (?P<loss>\S+)", "loss: 0,898", {"loss": None}),
        (
            r"step (?P<step>\d+).*loss (?P<loss>\S+)",
            "step 1,000, loss 2",
            {"step": 1000, "loss": 2},
        ),
        (r"step (?P<step>\d+),", "step 1,000, loss 2", {"step": 1000}),
        (r"(?P<seen>\d+) of (?P<of>\d+)", "seen 2 of 60,000", {"seen": 2, "of": 60000}),
    ],
)
def test_a_comma_separates_thousands_where_the_pattern_matches_without_it(
    pattern: str, text: str, values: dict[str, float | None]
) -> None:
    found = log_text.find(re.compile(pattern), text)
    assert found is not None
    assert found.values == values


def test_numbers_that_count_nothing_are_passed_over(tmp_path: Path) -> None:
    texts = [
        f"step {step} loss 1 tokens {much}"
        for step in ("nan", "1e999", 1, 2)
        for much in ("nan", -1, "1e999")
    ]
    made = read(
        "lines",
        source(tmp_path, texts, r"step (?P<step>\S+) loss (?P<loss>\S+) tokens (?P<samples>\S+)"),
    )
    assert [(row.step, row.images) for row in made.rows] == [(0, 4), (0, 4)]
    with refuses(UnreadError, "from 1", "to 1700000000"):
        read("lines", source(tmp_path, ["step 1 loss 1", "step 1700000000 loss 1"]))


def test_samples_and_validations_of_lines_of_their_own(tmp_path: Path) -> None:
    patterns = (
        r"step (?P<step>\d+) tokens (?P<samples>\S+)",
        r"^loss (?P<loss>\S+)",
        r"top1 (?P<top1>\S+) loss (?P<eval_loss>\S+)",
    )
    texts = ["step 1 tokens 1,001", "loss 3", "step 2 tokens 1,001", "loss 2", "top1 40.0 loss 1.5"]
    made = read("lines", source(tmp_path, texts, *patterns))
    assert [(row.images, row.loss) for row in made.rows] == [(501, 1.0), (500, 1.0)]
    assert [(one.top1, one.loss) for one in made.evaluations] == [(0.4, 1.5)]


@pytest.mark.parametrize(
    ("name", "texts", "says"),
    [
        ("lines", ["Schritt 1"], ["(?P<step>", "Schritt 1"]),
        ("lines", [], ["printed nothing"]),
        ("lines", ["among 2", "step 1 loss 1"], ["read: 1;"]),
        (
            "lines",
            ["step 1 loss 1", "among 1", "step 2 loss 1"],
            ["rank 0", "'among 1'", "1 workers instead of 2"],
        ),
        (
            "mllog",
            [':::MLL {"key": "seed", "value": 1, "time_ms": 1, "metadata": {}}'],
            ["samples_count"],
        ),
        ("trainer", [], ["trainer_state.json", "{folder}"]),
        ("recorder", [], ["Recorder()"]),
        ("tensorboard", [], ["tfevents"]),
        ("table", [], ["`file`"]),
    ],
)
def test_no_steps_is_one_line_that_says_what_is_missing(
    tmp_path: Path, name: str, texts: list[str], says: list[str]
) -> None:
    with pytest.raises(UnreadError) as error:
        read(name, source(tmp_path, texts, STEP, r"among (?P<workers>\d+)"))
    assert all(word.lower() in str(error.value).lower() for word in says)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("key", ["samples_count", "step_num"])
@pytest.mark.parametrize("printed", [True, False])
def test_mlperfs_log(tmp_path: Path, key: str, printed: bool) -> None:
    def event(name: str, value: object, ms: int, **metadata: object) -> str:
        return ":::MLL " + json.dumps(
            {"key": name, "value": value, "time_ms": ms, "metadata": metadata}
        )

    each = 8 if key == "samples_count" else 1
    texts = [event("global_batch_size", wrong, 0) for wrong in ("8", [], 0, -8, 1.5)]
    texts += [
        event("global_batch_size", 8, 0),
        event("loss", 1, 10**400, **{key: 3}).replace(str(10**400), "1e999"),
    ]
    texts += [event("train_loss", 1.0 / n, 1000 * n, **{key: n * each}) for n in range(1, 5)]
    texts += [event("eval_accuracy", 0.5, 4500)]
    of = source(tmp_path, texts if printed else [])
    if not printed:
        (of.folder / "weights.bin").write_bytes(b"\0" * 100 + b':::MLL {"value": 1}\n')
        (of.folder / "result_0.txt").write_text("\n".join(texts))
    made = read("mllog", of)
    assert taken(made) == [(0, 1.0), (1, 2.0), (2, 3.0)]
    assert [one.top1 for one in made.evaluations] == [0.5]


@pytest.mark.parametrize(
    ("batch", "again_s", "printed", "says"),
    [
        (8, (), 3, None),
        (8, (1000.25,), 4, None),  # its third line was of a step that was trained again
        (8, (), 0, "3 entries with a loss, and 0 printed"),
        (
            4,
            (),
            3,
            "counted 4 samples per step in place of 8",
        ),  # that of a rank which trains for itself
    ],
)
def test_a_trainers_state(
    tmp_path: Path, batch: int, again_s: tuple[float, ...], printed: int, says: str | None
) -> None:
    """Two ranks each print."""
    log = [{"loss": 4.0 - n, "step": 10 * n, "learning_rate": 1e-3} for n in range(1, 4)]
    end = {"train_runtime": 0.3, "train_samples_per_second": 100.0 * batch, "step": 30}
    log += [{"eval_loss": 2.0, "step": 30}, end]  # type: ignore[dict-item]
    told = [3.0, 2.0, 1.2, 1.0] if printed == 4 else [3.0, 2.0, 1.0]
    lines = [
        Line(1000 + n / 10 + rank / 100, f"{{'loss': {told[n]}}}", rank)
        for n in range(printed)
        for rank in range(2)
    ]
    of = replace(source(tmp_path, []), lines=lines, again_s=again_s)
    (of.folder / "checkpoint-30").mkdir()
    (of.folder / "checkpoint-30/trainer_state.json").write_text(json.dumps({"log_history": log}))
    if says:
        with pytest.raises(UnreadError, match=says):
            read("trainer", of)
        return
    made = read("trainer", of)
    assert taken(made)[-1] == (
        19,
        0.2,
    )  # steps that end behind an interruption take as long as others
    assert made.rows[-1].loss == pytest.approx(0.5)
    assert [one.loss for one in made.evaluations] == [2.0]


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("saved", [6, 4])
def test_a_trainers_state_of_few_samples_printed_twice_and_saved_early(
    tmp_path: Path, twice: bool, saved: int
) -> None:
    """28 samples in batches of 8: the last batch of each of two epochs has 4."""
    sizes = [8, 8, 8, 4] * 2
    log = [{"loss": 9.0 - n, "epoch": round(n / 4, 2), "step": n} for n in range(1, 9)]
    end = {"epoch": 2.0, "step": 8, "train_runtime": 4.0, "train_samples_per_second": 14.0}
    state = [*log[:saved], *([end] if saved == 6 else [])]
    lines = [
        Line(1000 + n / 2 + later, f"{{'loss': '{entry['loss']}', 'epoch': '{entry['epoch']}'}}")
        for n, entry in enumerate(log)
        for later in ((0.0, 0.1) if twice else (0.0,))
    ]
    of = replace(source(tmp_path, []), lines=lines)
    of = replace(of, spec=replace(of.spec, workers=1))
    (of.folder / "trainer_state.json").write_text(json.dumps({"log_history": state}))
    made = read("trainer", of)
    assert taken(made)[-1] == (saved - 2, pytest.approx((saved - 1) / 2))
    assert [row.images for row in made.rows] == (
        sizes[1:saved] if saved == 6 else [8] * (saved - 1)
    )
    assert made.proof.proved is (saved == 6)


@pytest.mark.parametrize("printed", [True, False])
def test_a_trainers_validation_lies_between_the_steps_where_it_was(
    tmp_path: Path, printed: bool
) -> None:
    """Each 25 steps, of which each 10th has a loss: 8 samples a step of 0.1 s, and 3 s."""
    log: list[dict[str, float]] = []
    lines, now = [], 1000.0
    for step in range(1, 121):
        now += 0.1
        entry = {"step": step, "epoch": round(step / 40, 2)}
        if step % 10 == 0:
            log.append({"loss": 9.0 - step / 100, **entry})
            lines.append(Line(now, f"{{'loss': {log[-1]['loss']}, 'epoch': {entry['epoch']}}}"))
        if step % 25 == 0:
            now += 3.0
            log.append({"eval_loss": 2.0 - step / 100, "eval_accuracy": step / 2.0, **entry})
            told = f"{{'eval_loss': {log[-1]['eval_loss']}, 'epoch': {entry['epoch']}}}"
            lines += [Line(now, told)] * printed
    of = replace(source(tmp_path, [], reads="trainer"), lines=lines)
    (of.folder / "trainer_state.json").write_text(json.dumps({"log_history": log}))
    made = read("trainer", of)
    took_s = sum(row.took_s for row in made.rows if row.rank == 0)
    assert sum(row.images for row in made.rows) / took_s == pytest.approx(80.0)
    assert [one.top1 for one in made.evaluations] == pytest.approx([0.125, 0.25, 0.375, 0.5])
    assert made.remarks["pauses"]["count"] == 4  # type: ignore[index]


def test_an_entry_that_was_trained_again_ends_when_it_was_printed_last(tmp_path: Path) -> None:
    """Step 2 was printed at 0.1 s and again, with the same loss, at 0.2 s."""
    log = [{"loss": 4.0 - n, "step": n} for n in range(1, 4)]
    of = source(tmp_path, [f"{{'loss': {loss}}}" for loss in (3.0, 2.0, 9.0, 2.0, 1.0)])
    (of.folder / "trainer_state.json").write_text(json.dumps({"log_history": log}))
    made = read("trainer", of)
    assert [end for _, end in taken(made)] == pytest.approx([0.3, 0.4])


CURVES = {  # of each folder: scalars of steps 0, 1, ...
    "": {
        "val/loss": [5.0],
        "hparam/metric": [1.0],
        "train/lr": [0.1, 0.1, 0.1],
        "epoch": [0.0, 0.0, 0.0],
    },
    "latest/loss_train": {"loss": [3.0, 2.0, 1.0]},
    "latest/loss_val": {"loss": [9.0, 9.0, 9.0, 9.0]},
    "more": {"val/acc": [0.5]},
}


def field(number: int, data: bytes | int) -> bytes:
    """A field of a protocol buffer."""
    if isinstance(data, int):
        return varint(number << 3) + varint(data)
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(value: int) -> bytes:
    made = b""
    while value > 0x7F:
        made += bytes([value & 0x7F | 0x80])
        value >>= 7
    return made + bytes([value])


def event(tag: str, value: float, step: int, wall_time: float, tensor: bool = False) -> bytes:
    """A record of an event file: of TensorFlow 2 scalars are tensors."""
    number = varint(2 << 3 | 5) + struct.pack("<f", value)
    if tensor:
        number = field(8, field(1, 1) + field(2, b"") + field(5, struct.pack("<f", value)))
    summary = field(1, field(1, tag.encode()) + number)
    data = varint(1 << 3 | 1) + struct.pack("<d", wall_time) + field(2, step) + field(5, summary)
    return struct.pack("<QI", len(data), 0) + data + bytes(4)


def events_of(
    folder: Path, tag: str, values: list[float], steps: list[int], tensor: bool = False
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "events.out.tfevents.1.host").open("ab") as file:
        for n, (value, step) in enumerate(zip(values, steps, strict=True)):
            file.write(event(tag, value, step, 10.0 + n, tensor))


@pytest.mark.parametrize("tensor", [False, True])
def test_tensorboards_event_files(tmp_path: Path, tensor: bool) -> None:
    of = source(tmp_path, [], reads="tensorboard", axis="step", top1_in="fraction")
    for folder, scalars in CURVES.items():
        for tag, values in scalars.items():
            events_of(of.folder / folder, tag, values, [*range(len(values))], tensor)
    with (of.folder / "events.out.tfevents.1.host").open("ab") as file:
        file.write(event("loss", 1.0, 9, 99.0)[:-9])  # cut off
    made = read("tensorboard", of)
    assert taken(made) == [(0, 1.0), (1, 2.0)]
    assert [row.loss for row in made.rows if row.rank == 0] == [1.0, 0.5]
    assert [row.lr for row in made.rows if row.rank == 0] == [pytest.approx(0.1)] * 2
    assert [one.top1 for one in made.evaluations][:1] == [0.5]


@pytest.mark.parametrize(
    ("steps", "keys", "count"),
    [
        ([0, 80, 160, 240], {"axis": "sample"}, 30),
        ([0, 1, 2, 3], {"axis": "epoch", "steps_per_epoch": 50}, 150),
        ([0, 250, 500, 750], {"axis": "epoch_x1000", "steps_per_epoch": 40}, 30),
        ([0, 80, 160, 240], {"axis": "step"}, 240),
        ([0, 10, 20, 35], {}, 35),
        ([0, 80, 160, 240], {}, "axis: sample"),
        ([0, 1, 2, 3], {}, "axis: epoch"),
        ([0, 1, 2, 3], {"axis": "epoch"}, "steps_per_epoch"),
    ],
)
def test_what_an_axis_counts_is_said_or_shows(
    tmp_path: Path, steps: list[int], keys: dict[str, Any], count: int | str
) -> None:
    of = source(tmp_path, [], reads="tensorboard", **keys)
    events_of(of.folder, "train/loss", [3.0, 2.0, 1.0, 0.5], steps)
    if isinstance(count, str):
        with pytest.raises(UnreadError, match=count):
            read("tensorboard", of)
        return
    assert len(taken(read("tensorboard", of))) == count


def test_of_several_losses_one_is_asked_for(tmp_path: Path) -> None:
    of = source(tmp_path, [], reads="tensorboard")
    for tag in ("loss/box", "loss/class"):
        events_of(of.folder, tag, [3.0, 2.0, 1.0], [0, 10, 30])
    with refuses(UnreadError, "loss/box", "loss/class", "columns"):
        read("tensorboard", of)
    said = source(tmp_path, [], reads="tensorboard", columns=(("loss", "loss/class"),))
    assert read("tensorboard", said).remarks["scalars"] == {"loss": "loss/class"}
    events_of(of.folder, "total_loss", [9.0, 8.0, 7.0], [0, 10, 30])
    assert read("tensorboard", of).rows[-1].loss == 3.5


CSV = """epoch,step,train_loss_step,val_loss,when
0,9,2.5,,{0}
0,19,2.0,,{1}
0,19,,1.5,{2}
1,29,1.5,,{3}
"""


@pytest.mark.parametrize("form", ["csv", "jsonl", "json"])
@pytest.mark.parametrize("written", ["seconds", "milliseconds", "dates"])
def test_tables(tmp_path: Path, form: str, written: str) -> None:
    times: list[object] = [100.0, 101.0, 106.0, 107.0]
    if written == "milliseconds":
        times = [1.8e12, 1.8e12 + 1000, 1.8e12 + 6000, 1.8e12 + 7000]  # since 1970
    if written == "dates":
        times = [f"2026-01-01T00:01:0{second}+00:00" for second in (0, 1, 6, 7)]
    text = CSV.format(*times)
    columns = {"loss": "train_loss_step", "time": "when", "eval_loss": "val_loss", "step": "step"}
    of = source(tmp_path, [], reads="table", file=f"metrics.{form}", columns=tuple(columns.items()))
    if form != "csv":
        head, *rows = [line.split(",") for line in text.split()]
        each = [
            {k: float(v) if k != "when" else v for k, v in zip(head, row, strict=True) if v}
            for row in rows
        ]
        text = json.dumps(each) if form == "json" else "\n".join(map(json.dumps, each))
    (of.folder / f"metrics.{form}").write_text(text)
    made = read("table", of)
    assert taken(made)[-1] == (19, pytest.approx(7.0))
    assert [row.loss for row in made.rows if row.loss == row.loss][::2] == [1.0, 0.75]
    assert [one.loss for one in made.evaluations] == [1.5]


@pytest.mark.parametrize(
    ("names", "text", "says"),
    [
        ([], "", "there are: none"),
        (["a.csv", "b.csv"], "step,time\n1,1\n", "a.csv, b.csv"),
        (["a.csv"], "step,loss\n1,1\n2,1\n", "no column holds times"),
        (["a.csv"], "n,time\n1,1\n2,1\n", "no column holds a count"),
        (["a.csv"], "step,iter,time\n1,1,1\n2,2,2\n", "several columns may be step: step, iter"),
        (["a.csv"], "epoch,time\n1,1\n2,2\n", "steps_per_epoch"),
        (["a.jsonl"], "{}", "no column holds a count"),
        (["a.csv"], "step,time,loss\n1,1,3\n2,2,nan\n", "not finite"),
    ],
)
def test_a_table_that_cannot_be_read_says_which_column(
    tmp_path: Path, names: list[str], text: str, says: str
) -> None:
    of = source(tmp_path, [], reads="table")
    for name in names:
        (of.folder / name).write_text(text)
    with pytest.raises(UnreadError, match=says):
        read("table", of)


def test_times_of_a_table_since_its_start_are_dated_by_the_file(tmp_path: Path) -> None:
    """Else the run began in 1970, and overlaps with every other one."""
    of = source(tmp_path, [], reads="table")
    path = of.folder / "a.csv"
    path.write_text("step,time\n1,0.5\n2,1.5\n3,2.5\n")
    os.utime(path, (1.8e9, 1.8e9))
    assert read("table", of).began_s == 1.8e9 - 2.0


def test_how_long_a_step_took_is_no_clock(tmp_path: Path) -> None:
    """Detectron2 and mmcv write it as `time`. Times that go back once are of a run that went on."""
    of = source(tmp_path, [], reads="table")
    rows = [{"iteration": 20 * n, "time": 0.34 + n % 3 / 100, "loss": 2.5} for n in range(1, 40)]
    path = of.folder / "metrics.json"
    path.write_text("\n".join(map(json.dumps, rows)))
    with refuses(UnreadError, "metrics.json", "time", "columns.time", 13, 39):
        read("table", of)
    again = [{"step": n, "time": n % 30, "loss": 2.5} for n in range(60)]
    path.write_text("\n".join(map(json.dumps, again)))
    assert taken(read("table", of)) == [(n, pytest.approx(n + 1.0)) for n in range(59)]


@pytest.mark.parametrize(("rate", "agrees"), [(8.0, True), (11.0, False)])
def test_a_rate_in_a_table_proves_or_denies(tmp_path: Path, rate: float, agrees: bool) -> None:
    """Of 8 samples a step, a step a second."""
    of = source(tmp_path, [], reads="table", rate_of="all", columns=(("samples_per_s", "ips"),))
    rows = "".join(f"{n},{n},{rate}\n" for n in range(1, 8))
    (of.folder / "a.csv").write_text(f"step,time,ips\n{rows}")
    made = read("table", of)
    assert made.remarks["printed_rate"]["agrees"] is agrees
    assert made.proof.proved is agrees


def test_a_running_total_is_not_the_samples_of_a_step(tmp_path: Path) -> None:
    of = source(tmp_path, [], reads="table", columns=(("samples", "seen"),))
    rows = "".join(f"{n},{n},{8 * n}\n" for n in range(1, 8))
    (of.folder / "a.csv").write_text(f"step,time,seen\n{rows}")
    with refuses(UnreadError, "seen", "columns.samples", "8 a row", "columns.seen_all"):
        read("table", of)


@pytest.mark.parametrize(
    ("column", "per_step", "is_proved"),
    [("seen_all", 8, True), ("seen", 4, True), ("seen_all", 4, None), ("seen", 8, None)],
)
def test_samples_beside_the_steps_of_a_table_prove_the_batch(
    tmp_path: Path, column: str, per_step: int, is_proved: bool | None
) -> None:
    """Of 8 samples a step on two ranks; the last batch of an epoch is smaller."""
    of = source(tmp_path, [], reads="table", columns=((column, "consumed"),))
    rows = "".join(f"{n},{n},{per_step * n - (n > 20)}\n" for n in range(1, 31))
    (of.folder / "a.csv").write_text(f"step,time,consumed\n{rows}")
    if is_proved is None:
        with refuses(UnreadError, f"by {per_step} a step", "8"):
            read("table", of)
    else:
        assert read("table", of).proof.proved is is_proved


def test_samples_beside_steps_in_a_line_are_evidence_whatever_they_are_called(
    tmp_path: Path,
) -> None:
    pattern = r"step (?P<step>\d+) tok (?P<seen_all>\d+)"
    of = source(tmp_path, [f"step {n} tok {8 * n}" for n in range(9)], pattern)
    assert read("lines", of).proof.proved
    of = source(tmp_path, [f"step {n} tok {96 * n}" for n in range(9)], pattern)
    with refuses(UnreadError, "by 96 a step", "8"):
        read("lines", of)


def test_parts_of_epochs_in_a_table_prove_its_steps(tmp_path: Path) -> None:
    of = source(tmp_path, [], reads="table", samples_per_epoch=400)
    rows = "".join(f"{n},{n},{n / 50}\n" for n in range(1, 81))
    (of.folder / "a.csv").write_text(f"step,time,epoch\n{rows}")
    assert read("table", of).proof.proved


@pytest.mark.parametrize(("digits", "is_read"), [(2, False), (4, True)])
def test_rounded_epochs_of_a_table_are_too_coarse(
    tmp_path: Path, digits: int, is_read: bool
) -> None:
    """Rows each 75 of 10 000 steps."""
    of = source(tmp_path, [], reads="table", steps_per_epoch=10_000)
    rows = "".join(f"{75 * n / 10_000:.{digits}f},{7.5 * n}\n" for n in range(1, 13))
    (of.folder / "a.csv").write_text(f"epoch,time\n{rows}")
    if is_read:
        assert taken(read("table", of))[-1] == (824, pytest.approx(82.5))
    else:
        with refuses(UnreadError, "epoch", "rounded to 100", 800):
            read("table", of)


def test_a_row_of_a_whole_epoch_asks_for_no_steps_of_one(tmp_path: Path) -> None:
    """Its steps are counted by another column."""
    of = source(tmp_path, [], reads="table")
    rows = "".join(f"0,{n},{n},1.5\n" for n in range(1, 8))
    (of.folder / "a.csv").write_text(f"epoch,step,time,loss\n{rows}0,,8,1.4\n")
    assert len(taken(read("table", of))) == 6


def mlperf(name: str, value: object, ms: float, **metadata: object) -> str:
    return ":::MLLOG " + json.dumps(
        {"key": name, "value": value, "time_ms": ms, "metadata": metadata}
    )


def test_mlperfs_blocks_and_evaluations_count_apart(tmp_path: Path) -> None:
    """A block's start says its target, an evaluation counts its own samples, numbers may be
    floats.
    """
    texts = [mlperf("global_batch_size", 8, 0)]
    for block in range(3):
        at_s, done = block * 15_000, block * 80
        texts.append(mlperf("block_start", None, at_s, samples_count=done + 80))
        texts += [
            mlperf("train_loss", 9.0 - n, at_s + 1000 * n, samples_count=float(done + 8 * n))
            for n in range(1, 11)
        ]
        texts += [mlperf("eval_start", None, at_s + 10_000, samples_count=done + 80)]
        texts += [mlperf("eval_accuracy", 0.9 - block / 10, at_s + 14_000, samples_count=40)]
        texts += [mlperf("eval_stop", None, at_s + 14_500, samples_count=40)]
    made = read("mllog", source(tmp_path, texts))
    assert (len(taken(made)), taken(made)[-1][1]) == (29, pytest.approx(39.0))
    assert sum(row.took_s for row in made.rows if row.rank == 0) == pytest.approx(29.0)
    assert made.evaluations == []  # which fall: a loss by the name of an accuracy


def test_mlperfs_epochs_need_the_samples_of_one(tmp_path: Path) -> None:
    texts = [mlperf("global_batch_size", 8, 0)]
    for number in range(1, 4):
        texts.append(mlperf("epoch_start", None, 10_000 * number, epoch_num=number))
        texts.append(mlperf("epoch_stop", None, 10_000 * number + 8_000, epoch_num=number))
    with pytest.raises(UnreadError, match="samples_per_epoch"):
        read("mllog", source(tmp_path, texts))
    made = read("mllog", source(tmp_path, [*texts, mlperf("train_samples", 400, 0)]))
    assert (len(taken(made)), taken(made)[-1][1]) == (150, pytest.approx(28.0))


def test_of_several_processes_in_turn_the_last_counts(tmp_path: Path) -> None:
    texts = [mlperf("global_batch_size", 8, 0)]
    for turn in range(2):
        texts.append(mlperf("run_start", None, turn * 100_000))
        texts += [mlperf("loss", 1.0, turn * 100_000 + 1000 * n, step_num=n) for n in range(1, 6)]
        texts.append(mlperf("run_stop", None, turn * 100_000 + 9_000, status="success"))
    assert taken(read("mllog", source(tmp_path, texts)))[-1] == (3, pytest.approx(4.0))
