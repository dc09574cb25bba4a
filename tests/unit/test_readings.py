"""How steps of a user's program are read: from lines, MLPerf's log, a Trainer's state, TensorBoard, the recorder."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from ddlbench.core import registry
from ddlbench.run.readings import Line, Output, Reading, UnreadError, lines

from tests.unit.programs import STEP, spec

RATE = r"step (?P<step>\d+) loss (?P<loss>\S+)(?: lr (?P<lr>\S+))? at (?P<samples_per_s>.+?) tok/s"


def source(folder: Path, texts: list[str], *patterns: str, every_s: float = 0.1, **more: object) -> Output:
    """A program of two ranks that printed these lines, one each 0.1 s from second 1000 on; its batch is 8."""
    own = folder / "program"
    own.mkdir(exist_ok=True)
    run = spec(folder, 2, patterns=patterns or (STEP,))
    printed = [Line(1000.0 + number * every_s, text) for number, text in enumerate(texts)]
    return Output(run, own, folder, printed, texts, **more)  # type: ignore[arg-type]


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


def test_steps_told_now_and_then_share_the_time_between(tmp_path: Path) -> None:
    made = read("lines", source(tmp_path, [f"step {step} loss 1" for step in (10, 20, 25)]))
    assert taken(made) == [(n, pytest.approx(0.01 * (n + 1))) for n in range(10)] + [
        (n, pytest.approx(0.1 + 0.02 * (n - 9))) for n in range(10, 15)
    ]
    assert made.remarks["told_every_steps"] == 10


@pytest.mark.parametrize(
    ("told", "count"), [([0, 1, 2, 3] * 3, 11), ([1, 2, 3, 4] * 3, 11), ([0, 0, 1, 1, 2, 3, 2, 3, 4, 4], 4)]
)
def test_epochs_that_count_anew_and_ranks_that_print_in_turns(tmp_path: Path, told: list[int], count: int) -> None:
    texts = [f"step {step} loss 1" for step in told]
    assert [step for step, _ in taken(read("lines", source(tmp_path, texts)))] == list(range(count))


def test_a_program_may_count_samples_in_place_of_steps(tmp_path: Path) -> None:
    """Two ranks of 4 samples each; the last batch of an epoch is smaller, so its line says less than the one before."""
    texts = [f"Train Epoch: {epoch} [{seen}/14 (0%)] Loss: 1" for epoch in (1, 2) for seen in (0, 4, 8, 6)]
    made = read("lines", source(tmp_path, texts, r"\[(?P<seen>\d+)/.*Loss: (?P<loss>\S+)"))
    assert [(row.step, row.images) for row in made.rows if row.rank == 0] == [(step, 4) for step in range(7)]


def test_an_interruption_takes_no_time_and_steps_made_again_count_once(tmp_path: Path) -> None:
    texts = [f"step {step} loss 1" for step in (0, 1, 2, 3, 2, 3, 4)]
    of = source(tmp_path, texts, again_s=[1000.35])
    assert taken(read("lines", of)) == [(0, 0.1), (1, 0.2), (2, 0.3), (3, 0.4)]


@pytest.mark.parametrize(
    ("rate", "agrees"),
    [("80", True), ("0.08k", True), ("79.9", True), ("110", False), ("80,000", None), ("0.01M", None), ("8", None)],
)
def test_a_rate_is_never_believed_against_the_clock(tmp_path: Path, rate: str, agrees: bool | None) -> None:
    of = source(tmp_path, [f"step {step} loss 1 lr 1e-3 at {rate} tok/s" for step in range(6)], RATE)
    if agrees is None:
        with pytest.raises(UnreadError, match=r"its clock says 80: "):
            read("lines", of)
        return
    made = read("lines", of)
    said = made.remarks["printed_rate"]
    assert isinstance(said, dict)
    assert said["agrees"] is made.proof.proved is agrees
    assert said["by_clock_per_s"] == pytest.approx(80.0)
    assert {row.lr for row in made.rows} == {0.001}


TEXTS = ["1,234.5", "12'345", "1_000", "1.5k", "2.5M", "-3e-4", "62.5 %", "12.5ms", "3,", "loss", ""]
VALUES = [1234.5, 12345.0, 1000.0, 1500.0, 2.5e6, -3e-4, 0.625, 12.5, None, None, None]


@pytest.mark.parametrize(("text", "value"), [*zip(TEXTS, VALUES, strict=True)])
def test_numbers_as_people_print_them(text: str, value: float | None) -> None:
    assert lines.number(text) == (pytest.approx(value) if value is not None else None)


def test_numbers_that_count_nothing_are_passed_over(tmp_path: Path) -> None:
    texts = [f"step {step} loss 1 tokens {much}" for step in ("nan", "1e999", 1, 2) for much in ("nan", -1, "1e999")]
    made = read("lines", source(tmp_path, texts, r"step (?P<step>\S+) loss (?P<loss>\S+) tokens (?P<samples>\S+)"))
    assert [(row.step, row.images) for row in made.rows] == [(0, 4), (0, 4)]
    with pytest.raises(UnreadError, match="from 1 to 1700000000: are these numbers of steps"):
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
        ("lines", ["step 1 loss 1", "among 1", "step 2 loss 1"], ["rank 0", "'among 1'", "1 workers, and not 2"]),
        ("mllog", [':::MLL {"key": "seed", "value": 1, "time_ms": 1, "metadata": {}}'], ["samples_count"]),
        ("trainer", [], ["trainer_state.json", "{folder}"]),
        ("recorder", [], ["Recorder()"]),
        ("tensorboard", [], ["tfevents" if registry.importable("tensorboard") else "tensorboard"]),
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
        return ":::MLL " + json.dumps({"key": name, "value": value, "time_ms": ms, "metadata": metadata})

    each = 8 if key == "samples_count" else 1
    texts = [event("global_batch_size", wrong, 0) for wrong in ("8", [], 0, -8, 1.5)]
    texts += [event("global_batch_size", 8, 0), event("loss", 1, 10**400, **{key: 3}).replace(str(10**400), "1e999")]
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
        (4, (), 3, "counted 4 samples per step in place of 8"),  # that of a rank which trains for itself
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
        Line(1000 + n / 10 + rank / 100, f"{{'loss': {told[n]}}}", rank) for n in range(printed) for rank in range(2)
    ]
    of = replace(source(tmp_path, []), lines=lines, again_s=again_s)
    (of.folder / "checkpoint-30").mkdir()
    (of.folder / "checkpoint-30/trainer_state.json").write_text(json.dumps({"log_history": log}))
    if says:
        with pytest.raises(UnreadError, match=says):
            read("trainer", of)
        return
    made = read("trainer", of)
    assert taken(made)[-1] == (19, 0.2 if not again_s else 0.1)
    assert made.rows[-1].loss == pytest.approx(0.5)
    assert [one.loss for one in made.evaluations] == [2.0]


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("saved", [6, 4])
def test_a_trainers_state_of_few_samples_printed_twice_and_saved_early(tmp_path: Path, twice: bool, saved: int) -> None:
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
    assert [row.images for row in made.rows] == (sizes[1:saved] if saved == 6 else [8] * (saved - 1))
    assert made.proof.proved is (saved == 6)


CURVES = {  # of each folder: scalars of steps 0, 1, ...
    "": {"val/loss": [5.0], "hparam/metric": [1.0], "train/lr": [0.1, 0.1, 0.1], "epoch": [0.0, 0.0, 0.0]},
    "latest/loss_train": {"loss": [3.0, 2.0, 1.0]},
    "latest/loss_val": {"loss": [9.0, 9.0, 9.0, 9.0]},
    "more": {"val/acc": [0.5]},
}


def read_curves(of: Output) -> None:
    made = read("tensorboard", of)
    assert taken(made) == [(0, 1.0), (1, 2.0)]
    assert [row.loss for row in made.rows if row.rank == 0] == [1.0, 0.5]
    assert [row.lr for row in made.rows if row.rank == 0] == [pytest.approx(0.1)] * 2
    assert [one.top1 for one in made.evaluations][:1] == [0.5]


def test_tensorboard_reads_what_torch_writes(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed: pip install tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    of = source(tmp_path, [])
    for folder, scalars in CURVES.items():
        with SummaryWriter(of.folder / folder) as writer:
            for tag, values in scalars.items():
                for step, value in enumerate(values):
                    writer.add_scalar(tag, value, step, walltime=10.0 + step)
    read_curves(of)


def test_tensorboards_own_reader_reads_event_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader is asked for scalars by name; a stand-in answers where the package is not installed."""
    of = source(tmp_path, [])

    class Events:
        def __init__(self, folder: str, size_guidance: dict[str, int]) -> None:
            self.scalars = CURVES[folder.removeprefix(str(of.folder)).strip("/")]

        def Reload(self) -> None: ...

        def Tags(self) -> dict[str, list[str]]:
            return {"scalars": list(self.scalars)}

        def Scalars(self, tag: str) -> list[SimpleNamespace]:
            return [SimpleNamespace(wall_time=10.0 + n, step=n, value=v) for n, v in enumerate(self.scalars[tag])]

    for folder in CURVES:
        (of.folder / folder).mkdir(parents=True, exist_ok=True)
        (of.folder / folder / "events.out.tfevents.1").touch()
    if not registry.importable("tensorboard"):
        with pytest.raises(UnreadError, match="pip install"):
            read("tensorboard", of)
    stand_in = ModuleType("event_accumulator")
    stand_in.EventAccumulator = Events  # type: ignore[attr-defined]
    names = ("tensorboard", "tensorboard.backend", "tensorboard.backend.event_processing")
    for name in names:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, f"{names[-1]}.event_accumulator", stand_in)
    monkeypatch.setattr(registry, "importable", lambda package: True)
    read_curves(of)
