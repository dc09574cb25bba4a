"""A program's file to begin with, from any --help, and a trial of it: what is read, and whatever
the program does.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import yaml
from ddlbench.commands.call import Call
from ddlbench.commands.main import parser
from ddlbench.commands.new import batch, candidates, trial
from ddlbench.commands.new import columns as new_columns
from ddlbench.commands.new import program as new_program
from ddlbench.commands.new import study as new_study
from ddlbench.core import living
from ddlbench.run.readings import Line, Output, UnreadError
from ddlbench.settings.config import ConfigError
from ddlbench.settings.program import load_program
from ddlbench.settings.study import load_study

from tests.conftest import ROOT
from tests.facts import missing, refuses
from tests.unit.programs import spec

pytestmark = pytest.mark.usefixtures("handlers")
ARGPARSE = """
import argparse, sys, time, helper
parser = argparse.ArgumentParser()
parser.add_argument("data", help="see --nothing")
parser.add_argument("--data-dir", required=True)
parser.add_argument("-b", "--batch-size", type=int, default=4, help="of one rank")
parser.add_argument("--precision", choices=["fp32", "bf16"])
parser.add_argument("--train.output-dir", dest="out")
which = parser.add_mutually_exclusive_group(required=True)
which.add_argument("--scratch")
which.add_argument("--resume-from")
options = parser.parse_args()
"""
CLICK = """
import click
@click.command()
@click.argument("data")
@click.option("--batch-size", type=int, required=True)
@click.option("--precision", type=click.Choice(["fp32", "bf16"]))
@click.option("--seed", default=1, help="of --nothing")
def main(**options): pass
main()
"""
ABSL = r"""
print("A training.\nflags:\n\ntrain.py:\n  --batch_size: Samples of --nothing.\n    (default: '8')\n    (an integer)\n"
      "  --dtype: <fp32|bf16>: Which.\n  --[no]fast: Faster.\n\nTry --helpfull to get a list of all flags.")
raise SystemExit(1)
"""
PLAIN = """
import os, sys, time
open("checkpoint.pt", "w").write("x" * 100)
if os.fork() == 0:
    os.setsid()
    time.sleep(1000)
{then}
"""
STEPS = (
    'for step in range({steps}):\n    print(f"Epoch 1 | iter {{step}}: train loss {{1 / (step +'
    ' 1):.3f}}", flush=True)'
)

PACED = f"{STEPS.format(steps=9)}; time.sleep(0.05)"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder config/ of a project that one stands in; a --help may take 4 s."""
    for folder in ("programs", "studies"):
        (tmp_path / "config" / folder).mkdir(parents=True)
    (tmp_path / "config/machines").symlink_to(ROOT / "config/machines")
    (tmp_path / "config/config.yaml").write_text("study: demo\nmachine: local\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(new_program, "HELP_S", 4.0)
    return Path("config")


def family() -> set[int]:
    """Processes that descend from this one and live."""
    return {one.pid for one in psutil.Process().children(recursive=True) if living.state(one.pid)}


def call(*words: str) -> int:
    options = parser().parse_args(["new", "program", *words])
    code: int = options.answer(Call(options))
    return code


def written(config: Path, source: str, name: str = "train.py") -> str:
    Path(name).write_text(source)
    path, _ = new_program.write(name, None, None, config)
    load_program(path.stem, path.parent, draft=True)
    return path.read_text()


def test_argparse(config: Path) -> None:
    Path("helper.py").touch()
    text = written(config, ARGPARSE, "my train.py")
    made = load_program("my-train", config / "programs", draft=True)
    assert made.programs()[0].argv({"batch_per_worker": 4, "folder": "a b"}) == [
        *("python", "my train.py", "--data-dir", "SET", "--scratch", "SET", "SET"),
        *("--batch-size", "4", "--train.output-dir", "a b"),
    ]
    assert made.files == ("my train.py", "helper.py")
    assert "# settings: {precision: [fp32, bf16]}" in text and "--nothing" not in text
    assert "# resume: --resume-from {folder}/SET" in text
    with pytest.raises(ConfigError, match="is there already"):
        new_program.write("my train.py", None, None, config)


@pytest.mark.parametrize(
    ("source", "command"),
    [
        (CLICK, "python train.py SET --batch-size {batch_per_worker} --seed {seed}"),
        (ABSL, "python train.py --batch_size {batch_per_worker}"),
    ],
)
def test_click_and_absl(config: Path, source: str, command: str) -> None:
    text = written(config, source)
    assert load_program("train", config / "programs", draft=True).command == command
    assert "[fp32, bf16]}" in text and "SET: --help" not in text


@pytest.mark.parametrize(
    ("then", "says", "hint"),
    [
        ("", "named no options", "command"),
        (STEPS.format(steps=5), "it printed last: Epoch 1 | iter 4", "command"),
        ("time.sleep(1000)", "had not ended after 4 s", "command"),
        ("while True: print('x' * 10_000)", "no", None),
        ("import no_such_package", "No module named 'no_such_package'", "--environment"),
        ("a b", "SyntaxError", None),
        ("sys.exit('no data')", "no data", None),
    ],
)
def test_a_help_that_is_none_is_ended_and_said(
    config: Path, capfd: pytest.CaptureFixture[str], then: str, says: str, hint: str | None
) -> None:
    """Another environment is only advised where a module was not found."""
    Path("train.py").write_text(PLAIN.format(then=then))
    before = family()
    assert call("train.py") == 0
    assert family() == before
    said = capfd.readouterr().out
    assert says in said
    for word in ("--environment", "key command"):
        assert (word in said) is (hint is not None and word.endswith(hint))
    text = Path("config/programs/train.yaml").read_text()
    assert missing(text, "# SET: --help", "batch size", "several ranks") == []
    assert sorted(path.name for path in Path().iterdir()) == ["config", "train.py"]


def test_another_python(config: Path) -> None:
    """A package that only the other environment has."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "own python"], check=True)
    site = next(Path("own python/lib").iterdir()) / "site-packages"
    (site / "only_there.py").write_text("OPTION = '--batch-size'")
    Path("train.py").write_text(
        "import argparse, only_there\nparser ="
        " argparse.ArgumentParser()\nparser.add_argument(only_there.OPTION)\nparser.parse_args()\nfor"
        ' step in range(4):\n    print(f"step {step} loss 1")\n'
    )
    path, page = new_program.write("train.py", "there", "own python", config)
    assert page.problem is None and "--batch-size {batch_per_worker}" in path.read_text()
    assert trial.show("there", 8, 30.0, config) == 0
    with refuses(ConfigError, "no such", "a folder"):
        new_program.write("train.py", "elsewhere", "no such", config)


@pytest.mark.parametrize(
    ("printed", "module"),
    [
        ("Traceback\nModuleNotFoundError: No module named 'timm.data'", "timm.data"),
        ("ModuleNotFoundError: No module named 'apex'\nstep 1\nValueError: no", None),
        ("Error: no such file", None),
        ("ImportError: cannot import name 'a' from 'b'", None),
    ],
)
def test_which_module_was_not_found(printed: str, module: str | None) -> None:
    """What a program can do without is none."""
    assert new_program.lacked(printed.splitlines()) == module


def test_a_module_that_lies_beside_the_program_needs_no_other_python(tmp_path: Path) -> None:
    (tmp_path / "src/nets").mkdir(parents=True)
    (tmp_path / "src/nets/__init__.py").touch()
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/helper.py").touch()
    for module, folder in (("nets.wide", "src"), ("helper", "tools")):
        assert f"PYTHONPATH={folder}" in new_program.without(module, None, tmp_path)
    assert missing(new_program.without("timm", "own", tmp_path), "environment own", "timm") == []


@pytest.mark.parametrize("given", ["no.py", "../outside.py", "config"])
def test_what_is_no_program(config: Path, given: str) -> None:
    Path("../outside.py").touch()
    with pytest.raises(ConfigError, match=given):
        call(given)
    assert [*(config / "programs").iterdir()] == []


@pytest.mark.parametrize(
    ("source", "reads"),
    [
        ("from ddlbench_recorder import Recorder", "recorder"),
        ("from transformers import (\n  Trainer)", "trainer"),
        ("import torch\nmp.spawn(main)", "lines"),
    ],
)
def test_how_it_is_read_stands_in_its_source(config: Path, source: str, reads: str) -> None:
    written(config, source)
    made = load_program("train", config / "programs", draft=True)
    assert (made.reads, made.ranks) == (reads, "own" if "spawn" in source else "each")


@pytest.mark.parametrize(
    ("line", "unit"),
    [
        ("step {n}: loss {loss}, time 500.5ms", "step"),
        ("iter={n} | lr=1e-3 | loss={loss}", "step"),
        ("Epoch: [0][ {n}/100]\tTime 0.3\tLoss {loss} (2.6)", "step"),
        ("Epoch 1 | iter {n4} step {n} | loss train: {loss}, val: n/a", "step"),
        ("INFO:root:Iteration {n} - training loss: {loss}", "step"),
        ("Epoch 0:  12%|##     | {n}/60 [00:01<00:04, 2.0it/s, loss={loss}]", "step"),
        ("\x1b[31mstep:  {n}  \x1b[32mloss:  {loss}\x1b[0m", "step"),
        ("done {n8} samples, loss {loss}", "seen_all"),
    ],
)
def test_a_pattern_is_found_for_what_many_programs_print(
    tmp_path: Path, line: str, unit: str
) -> None:
    """Steps of 0.5 s and 8 samples."""
    texts = [line.format(n=n, n4=4 * n, n8=8 * n, loss=f"-{n}.5") for n in range(1, 30)]
    told = [Line(1000 + n / 2, text) for n, text in enumerate(texts)]
    run = replace(spec(tmp_path, patterns=()), global_batch=8)
    found = candidates.candidates(Output(run, tmp_path, tmp_path, told, texts))
    one = candidates.chosen(found)
    assert one, found
    assert (one.unit, one.steps, one.rate) == (unit, 28, pytest.approx(16.0))
    assert "(?P<loss>" in one.keys["lines"]
    assert one.proved is (unit == "seen_all")


@pytest.mark.parametrize(
    ("line", "loss"),
    [
        ("step {n}, time {s}s, loss {total}", 1.5),
        ("step {n}, elapsed {s}, loss {total}", 1.5),
        ("step {n} | {s} sec | loss {total}", 1.5),
        ("iter {n} loss_rpn_cls: {part}, loss_rpn_box: {part}, loss: {total}", 1.5),
        ("iteration {n} | load_balancing_loss: {part} | lm loss: {total} | loss scale: 1.0", 1.5),
        ("step {n} val loss {part} train loss {total}", 1.5),
        ("timestep {n} loss_actor {part} loss_critic {total}", None),  # nobody says which
    ],
)
def test_a_pattern_takes_no_time_for_a_count_and_no_part_for_the_loss(
    tmp_path: Path, line: str, loss: float | None
) -> None:
    """Steps of 1.7 s; the seconds since the start are whole numbers."""
    texts = [line.format(n=n, s=round(1.7 * n), total=1.5, part=0.25) for n in range(1, 30)]
    told = [Line(1000 + 1.7 * n, text) for n, text in enumerate(texts)]
    run = replace(spec(tmp_path, patterns=()), global_batch=8)
    output = Output(run, tmp_path, tmp_path, told, texts)
    one = candidates.chosen(found := candidates.candidates(output))
    assert one, found
    assert (one.unit, one.steps) == ("step", 28)
    match = re.search(one.keys["lines"], texts[-1])
    assert match and match["step"] == "29"
    assert match.groupdict().get("loss") == (None if loss is None else "1.5")


@pytest.mark.parametrize(
    "rate", ["16.0/s (12.1/s)", "16.0/sec", "16.0 tokens/s", "16.0 imgs per second"]
)
def test_a_rate_that_it_prints_is_part_of_the_pattern(tmp_path: Path, rate: str) -> None:
    texts = [
        f"Train: 0 [ {n:3}/50 ( 2%)]  Loss: {n}.5 (1.0)  Time: 0.5s, {rate}  LR: 1e-5"
        for n in range(30)
    ]
    told = [Line(1000 + n / 2, text) for n, text in enumerate(texts)]
    run = replace(spec(tmp_path, patterns=()), global_batch=8)
    one = candidates.chosen(candidates.candidates(Output(run, tmp_path, tmp_path, told, texts)))
    assert one and "(?P<samples_per_s>" in one.keys["lines"] and "(?P<loss>" in one.keys["lines"]
    assert (one.unit, one.proved) == ("step", True)


@pytest.mark.parametrize(
    ("rate", "proved"),
    [
        ("rate {rate} patches/s", True),
        ("throughput: {rate}", True),
        ("train_samples_per_second={rate}", True),
        ("{rate}img/s", True),
        ("{rate} it/s", False),
        ("train_steps_per_second={rate}", False),
        ("{rate} MB/s", False),
    ],
)
def test_a_rate_in_lines_of_its_own_is_a_pattern_of_its_own(
    tmp_path: Path, rate: str, proved: bool
) -> None:
    """Of samples, whatever they are called; not of steps and bytes."""
    texts = [
        text
        for n in range(30)
        for text in (f"step {n} loss {n % 3}.5", rate.format(rate=f"{15.9 + n % 2 / 5:.1f}"))
    ]
    told = [Line(1000 + n // 2 / 2, text) for n, text in enumerate(texts)]
    run = replace(spec(tmp_path, patterns=()), global_batch=8)
    found = candidates.candidates(Output(run, tmp_path, tmp_path, told, texts))
    one = candidates.chosen(found)
    assert one and (one.unit, one.rate, one.proved) == ("step", pytest.approx(16.0), proved)
    assert isinstance(one.keys["lines"], list) is proved


def output_of(folder: Path, name: str, text: str) -> Output:
    """What a program wrote as a table: steps of 8 samples."""
    (folder / name).write_text(text)
    base = spec(folder, patterns=(), reads="table")
    return Output(replace(base, global_batch=8), folder, folder, [])


def dated(n: int) -> str:
    return f"2026-01-01T10:00:{n / 2:06.3f}"


@pytest.mark.parametrize(
    ("head", "row", "columns", "proved"),
    [
        (
            "when,global_step,train_loss,gpu_mem",
            lambda n: (dated(n), n, 2.5, 100 + n),
            {"step": "global_step", "time": "when", "loss": "train_loss"},
            False,
        ),
        (
            "tokens_seen,wall_seconds,objective_loss,samples_per_second",
            lambda n: (8 * n, n / 2, 2.5, 16.0),
            {
                "seen_all": "tokens_seen",
                "time": "wall_seconds",
                "loss": "objective_loss",
                "samples_per_s": "samples_per_second",
            },
            True,
        ),
        (
            "batch_idx,timestamp_ms,val_loss",
            lambda n: (n, 1.7e12 + 500 * n, 2.5),
            {"step": "batch_idx", "time": "timestamp_ms"},
            False,
        ),
    ],
)
def test_columns_are_found_by_their_names_and_shapes(
    tmp_path: Path,
    head: str,
    row: Callable[[int], tuple[object, ...]],
    columns: dict[str, str],
    proved: bool,
) -> None:
    lines = [head, *(",".join(map(str, row(n))) for n in range(1, 30))]
    source = output_of(tmp_path, "log.csv", "\n".join(lines))
    one = candidates.chosen(found := new_columns.candidates(source))
    assert one, found
    assert one.keys == {"file": "log.csv", "columns": columns}
    assert (one.steps, one.rate, one.proved) == (28, pytest.approx(16.0), proved)


@pytest.mark.parametrize(
    "row",
    [
        {"a": "{n}", "b": "{n3}", "time": "{half}"},  # either may be the step
        {"step": "{n}", "loss": "2.5"},  # no time
        {"iteration": "{n}", "time": "{third}", "loss": "2.5"},  # how long a step took
    ],
)
def test_where_two_columns_fit_or_none_no_column_is_picked(
    tmp_path: Path, row: dict[str, str]
) -> None:
    rows = [
        {
            name: float(form.format(n=n, n3=3 * n, half=n / 2, third=n % 3 / 10))
            for name, form in row.items()
        }
        for n in range(1, 30)
    ]
    source = output_of(tmp_path, "log.jsonl", "\n".join(map(json.dumps, rows)))
    try:
        assert candidates.chosen(new_columns.candidates(source)) is None
    except UnreadError:
        assert row.get("time") != "{half}"


def test_a_trial_writes_the_columns_of_a_table(
    config: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("train.py").write_text(
        "import time, pathlib\nfile = pathlib.Path('out.csv').open('w')\n"
        "print('update,seconds,loss', file=file)\nfor n in range(9):\n"
        "    time.sleep(0.05); print(n, n * 0.05, 2.5, sep=',', file=file, flush=True)\n"
    )
    Path("theirs").mkdir()
    Path("train.py").rename("theirs/train.py")
    (config / "programs/train.yaml").write_text(
        "command: python train.py\nfolder: theirs\nfiles: [theirs]\nreads: table\n"
    )
    assert trial.show("train", 8, 30.0, config) == 0
    made = load_program("train", config / "programs")
    assert made.file == "out.csv"
    assert dict(made.columns) == {"step": "update", "time": "seconds", "loss": "loss"}
    said = capfd.readouterr().out
    assert missing(said, "8 steps", "update", "grows by 1") == [] and "{'" not in said


@pytest.mark.parametrize(
    "line",
    [
        "[{n8}/800] loss {loss}",  # samples, or steps that are printed each eighth time
        "turn {n} loss {loss} round {n3}",
        "no number but {loss}",
    ],
)
def test_where_two_patterns_fit_or_none_no_pattern_is_picked(tmp_path: Path, line: str) -> None:
    texts = [line.format(n=n, n3=3 * n, n8=8 * n, loss=f"{n % 2}.5") for n in range(1, 30)]
    told = [Line(1000 + n / 2, text) for n, text in enumerate(texts)]
    run = replace(spec(tmp_path, patterns=()), global_batch=8)
    assert (
        candidates.chosen(candidates.candidates(Output(run, tmp_path, tmp_path, told, texts)))
        is None
    )


def test_a_trial_says_what_was_read(config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    steps = (
        'import time\nfor step in range(1000):\n    time.sleep(0.05)\n    print(f"step {step}: loss'
        ' {step}.5")\n'
    )
    written(config, "import sys\n'--help' in sys.argv and sys.exit()\n" + steps)
    with pytest.raises(ConfigError, match='lines: "SET"'):
        load_program("train", config / "programs")
    assert trial.show(None, 16, 4.0, config) == 0
    said = capfd.readouterr().out
    assert missing(said, "batch_per_worker 16", "then it was ended") == []
    assert all(
        one in said
        for one in ("no {batch_per_worker}", "no {seed}", "  step 0: loss 0.5", "loss 1.5 at first")
    )
    rate = float(said.split(" samples per s by ")[0].rsplit("\n", 1)[1])
    assert 50 < rate <= 16 / 0.05
    assert missing(said, "ddlbench new study", "--program train") == []
    assert "read, not proved" in said and "Nothing confirms" in said
    written_now = load_program("train", config / "programs").programs()[0].patterns
    assert written_now == (r"\bstep\s*(?P<step>\d+(?:,\d{3})*).*?\bloss\s*(?P<loss>[-+\w.]+)",)


def test_a_trial_is_read_again_where_only_its_reading_is_changed(
    config: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A secret in its command is not kept."""
    Path("train.py").write_text(
        "import sys, time\nopen('runs', 'a').write('.')\nprint(sys.argv)\nfor step in range(9):\n"
        "    time.sleep(0.05); print(f'step {step} loss 1.5 of 2.5', flush=True)"
    )
    file, keys = config / "programs/train.yaml", {"lines": "step (?P<step>.+?) loss (?P<loss>\\S+)"}
    keys |= {"command": "python train.py --token abracadabra", "files": ["train.py"]}
    shown, runs = [], []
    for changes, size in (
        ({}, 8),
        ({"lines": "step (?P<step>.+?) loss .* of (?P<loss>.+)", "sample": "tokens"}, 8),
        ({}, 16),
        ({"command": "python train.py --fast"}, 16),
    ):
        keys |= changes
        file.write_text(yaml.safe_dump(keys))
        assert trial.show("train", size, 30.0, config) == 0
        shown.append(capfd.readouterr().out)
        runs.append(len(Path("runs").read_text()))
        heard = Path("results/trials/train/printed.jsonl").read_text()
        assert "step 8" in heard and "abracadabra" not in heard
    assert runs == [1, 1, 2, 3]
    assert ["rm -r results/trials/train" in said for said in shown] == [False, True, False, False]
    assert ["loss 2.5 at first" in said for said in shown] == [False, True, True, True]
    assert missing(shown[1], "tokens") == []
    Path("train.py").write_text(f"{Path('train.py').read_text()}\nsys.exit(3)")
    for _ in range(2):  # a program that failed runs again
        assert trial.show("train", 16, 30.0, config) == 1
    assert len(Path("runs").read_text()) == 5


@pytest.mark.more
@pytest.mark.parametrize(
    ("then", "code", "says"),
    [
        ("print('no word of it')", 1, ["nothing fits"]),
        ("time.sleep(1000)", 1, ["nothing fits", "then it was ended"]),
        (f"{PACED}\nsys.exit('out of tokens')", 1, ["ended with code 1", "8 steps"]),
        ("import no_such_package", 1, ["ended with code 1", "No module named"]),
    ],
)
def test_a_trial_of_whatever_it_does(
    config: Path, capfd: pytest.CaptureFixture[str], then: str, code: int, says: list[str]
) -> None:
    written(config, PLAIN.format(then=then))
    before = family()
    assert trial.show("train.py", 8, 4.0 if "sleep(1000" in then else 30.0, config) == code
    assert family() == before
    said = capfd.readouterr().out
    assert all(word in said for word in says), said


def test_what_is_left_to_say_is_asked_for(config: Path) -> None:
    written(config, CLICK)
    with pytest.raises(ConfigError, match="command: SET is left"):
        call("--try")
    with pytest.raises(ConfigError, match="program: is missing"):
        call()


def test_a_study_of_a_program(config: Path) -> None:
    written(config, ABSL)
    path = config / "programs/train.yaml"
    path.write_text(path.read_text().replace("lines: SET", "lines: 'step (?P<step>.)'"))
    study = new_study.write("mine", config, program="train")
    block = load_study("mine", config / "studies").blocks[0]
    assert (block.programs, block.workers) == (("train",), (1, 2))
    lines = study.read_text().splitlines()
    study.write_text(
        "\n".join(
            line.removeprefix("# ") for line in lines if not line.startswith(("repeats:", "# A"))
        )
    )
    until = load_study("mine", config / "studies").until
    assert until is not None and (until.at_least, until.at_most) == (3, 10)


@pytest.mark.parametrize(
    ("command", "source", "more", "block"),
    [
        ("--bs {batch_per_worker}", "add('--bs', type=int, default=64)", "", {"each": 64}),
        ("-b {batch_per_worker}", "add('-b', '--batch', help='(x', default=32)", "", {"each": 32}),
        ("train.batch_size={global_batch}", "class A:\n    batch_size: int = 12", "", {"all": 12}),
        ("--batch_size={batch_per_worker}", "batch_size = 12 # or\nx", "", {"each": 12}),
        ("--batch-size {batch_per_worker}", "batch_size = 4\nbatch_size = 6", "", {"each": 8}),
        ("--batch-size 48", "", "", {"each": 48}),
        ("--epochs 48", "", "", {"each": 8}),
        ("", "", "samples_per_epoch: 1024\nsteps_per_epoch: 16", {"all": 64}),
        ("", "", "samples_per_epoch: 1000\nsteps_per_epoch: 16", {"all": 63}),
    ],
)
def test_a_study_begins_with_the_batch_of_its_program(
    config: Path, command: str, source: str, more: str, block: dict[str, int]
) -> None:
    """What is only a guess is marked."""
    Path("train.py").write_text(source)
    (config / "programs/train.yaml").write_text(
        f"command: python train.py {command}\nfiles: [train.py]\nlines: 'step (?P<step>.)'\n{more}"
    )
    path = new_study.write("mine", config, program="train")
    (made,) = load_study("mine", config / "studies").blocks
    each, of_all = block.get("each"), block.get("all")
    assert made.batch_per_worker == ((each,) if each else None)
    assert made.global_batch == ((of_all,) if of_all else None)
    marked = each == 8 or of_all == 63 or "--batch-size 48" in command
    assert (batch.CHECK in path.read_text()) is marked


def test_a_program_that_reads_what_lies_beside_it_is_asked_there(config: Path) -> None:
    """And writes nothing there; in its file it runs there, too."""
    Path("theirs").mkdir()
    Path("theirs/options.txt").write_text("--batch-size")
    Path("theirs/train.py").write_text(
        "import argparse\nparser ="
        " argparse.ArgumentParser()\nparser.add_argument(open('options.txt').read())\nopen('log',"
        " 'w').write('')\nparser.parse_args()\n"
    )
    path, page = new_program.write("theirs/train.py", None, None, config)
    assert page.problem is None and "--batch-size {batch_per_worker}" in path.read_text()
    file = load_program("train", path.parent, draft=True)
    assert (file.folder, file.command.split()[:2]) == ("theirs", ["python", "train.py"])
    assert sorted(one.name for one in Path("theirs").iterdir()) == ["options.txt", "train.py"]


@pytest.mark.parametrize(
    ("script", "clone", "home"),
    [
        ("train.py", None, ""),
        ("theirs/train.py", None, "theirs"),
        ("theirs/tools/train.py", None, "theirs/tools"),
        ("theirs/tools/train.py", "theirs", "theirs"),
        ("theirs/tools/train.py", "", "theirs/tools"),  # the project's own clone
    ],
)
def test_a_program_runs_where_people_run_it(
    config: Path, script: str, clone: str | None, home: str
) -> None:
    Path(script).parent.mkdir(parents=True, exist_ok=True)
    Path(script).write_text(ABSL)
    if clone is not None:
        Path(clone, ".git").mkdir()
    new_program.write(script, "mine", None, config)
    file = load_program("mine", config / "programs", draft=True)
    assert file.folder == (home or None)
    assert Path(home, file.command.split()[1]) == Path(script)


def test_a_trial_runs_as_runs_do(
    config: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder of its own, on two workers, without what only this shell has on its
    PYTHONPATH.
    """
    Path("theirs").mkdir()
    Path("shell").mkdir()
    Path("shell/only_here.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(Path("shell").resolve()))
    Path("theirs/words.txt").write_text("some words")
    loop = (
        "for step in range(12):\n    time.sleep(0.05); print(f'step {step} loss {1 / (step +"
        " 3):.5f}', flush=True)\n"
    )
    Path("theirs/train.py").write_text(
        f"import time\nopen('words.txt')\nopen('log', 'a').write('')\n{loop}"
    )
    file = config / "programs/theirs.yaml"
    file.write_text(
        "command: python train.py\nfolder: theirs\nfiles: [theirs]\nlines: 'step (?P<step>.+) loss"
        " (?P<loss>.+)'"
    )
    assert trial.show("theirs", 8, 30.0, config, workers=2) == 0
    said = capfd.readouterr().out
    assert "on 2 workers" in said and "11 steps" in said
    assert "ranks train together: no: " in said
    assert sorted(one.name for one in Path("theirs").iterdir()) == ["train.py", "words.txt"]
    Path("theirs/train.py").write_text(f"import time, only_here\n{loop}")
    assert trial.show("theirs", 8, 30.0, config) == 1
    said = capfd.readouterr().out
    assert "No module named 'only_here'" in said and "ddlbench new study" not in said


def test_a_trial_shows_the_error_of_a_program_whose_files_are_read(
    config: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("train.py").write_text("raise SystemExit('no tokens are left')")
    (config / "programs/train.yaml").write_text(
        "command: python train.py\nfiles: [train.py]\nreads: trainer\n"
    )
    assert trial.show("train", 8, 30.0, config) == 1
    said = capfd.readouterr().out
    assert "no tokens are left" in said and "trainer_state.json" in said


def test_a_trial_names_a_pattern_that_matched_nothing(
    config: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Beside one that matched."""
    Path("train.py").write_text(
        "import time\nfor step in range(9):\n    time.sleep(0.05); print(f'step {step} loss 1.5',"
        " flush=True)"
    )
    (config / "programs/train.yaml").write_text(
        "command: python train.py\nfiles: [train.py]\n"
        "lines: ['step (?P<step>.+) loss (?P<loss>.+)', 'top1 (?P<top1>.+)']\n"
    )
    assert trial.show("train", 8, 30.0, config) == 0
    assert missing(capfd.readouterr().out, "Nearest", "top1 (?P<top1>.+)") == []
