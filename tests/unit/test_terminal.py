"""What a terminal shows while a study runs: one line after each run, and Snakemake's only where
they are wanted.
"""

import logging
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ddlbench.commands import terminal
from ddlbench.core.program import Program
from ddlbench.core.spec import of_program
from ddlbench.patches import ReleaseError, snakemake_lines
from ddlbench.run import reason

from tests.builders.plans import run_spec
from tests.builders.records import tables, write_record
from tests.facts import missing, refuses

NAMES = [f"run{number}" for number in range(31)]


def plan() -> Any:
    spec = SimpleNamespace(framework="deepspeed", sample="tokens", workers=2)
    about = {
        "rule": "train",
        "spec": spec,
        "folder": lambda results: results / "none",
        "outputs": lambda: [Path()],
    }
    jobs = {name: SimpleNamespace(**about) for name in NAMES}
    return SimpleNamespace(jobs=jobs, home="demo/local", machine=SimpleNamespace(device="cpu"))


def workflow(left: list[str]) -> Any:
    jobs = [
        SimpleNamespace(rule=SimpleNamespace(name="train"), wildcards=SimpleNamespace(run=name))
        for name in left
    ]
    return SimpleNamespace(dag=SimpleNamespace(needrun_jobs=lambda: iter(jobs)))


def record(text: str, level: int = logging.INFO, **about: Any) -> logging.LogRecord:
    made = logging.LogRecord("snakemake", level, "", 0, text, (), None)
    vars(made).update(about)
    return made


@pytest.fixture
def attached(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts our lines on a terminal of Snakemake's; gives the handler, which filters its records."""

    def attach(
        left: list[str], starts: bool = True, whole: bool = False
    ) -> tuple[terminal.Lines, logging.Handler]:
        lines, handler = (
            terminal.Lines(workflow(left), lambda: starts, whole),
            logging.StreamHandler(),
        )
        lines.plan = plan()
        monkeypatch.setattr("snakemake.logging.logger", SimpleNamespace(handlers=[handler]))
        snakemake_lines.attach(lines.shown)
        return lines, handler

    return attach


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "rate_of_steps", lambda folder: 1277.0)


@pytest.mark.usefixtures("measured")
def test_a_line_after_each_run(capsys: pytest.CaptureFixture[str], attached: Any) -> None:
    lines, terminals = attached(left := NAMES[10:])
    lines.plan.jobs[NAMES[3]].outputs = lambda: [
        Path("none")
    ]  # nobody asked for it: it counted as done
    assert not terminals.filter(
        record("Look at the machine", event="job_info", rule_name="preflight", jobid=1)
    )
    assert capsys.readouterr().err == "Look at the machine ...\n"
    for job in (7, 8):
        about = {"rule_name": "train", "jobid": job, "wildcards": {"run": left[job - 7]}}
        assert not terminals.filter(record("", event="job_info", **about))
    lines.began = time.time() - 60
    assert not terminals.filter(record("", logging.ERROR, event="job_error", jobid=8))
    assert not terminals.filter(record("", event="job_finished", job_id=7))
    broken, why, done = capsys.readouterr().err.splitlines()
    assert why.startswith(f"    {left[1]}: ")
    assert (
        missing(broken, "9 of 31", "1 failed", "deepspeed", "2 workers", "ddlbench failures") == []
    )
    assert (
        missing(
            done, "10 of 31", "1 failed", "expected end", "deepspeed", "2 workers", "1,277 tokens/s"
        )
        == []
    )


@pytest.mark.usefixtures("measured")
def test_the_reason_stands_under_the_line_of_a_run(
    capsys: pytest.CaptureFixture[str], attached: Any, tmp_path: Path
) -> None:
    """And a run that was only stopped has not failed."""
    lines, terminals = attached(left := NAMES[10:])
    for number, name in enumerate(left[:2]):
        lines.plan.jobs[name] = SimpleNamespace(**vars(lines.plan.jobs[name]))
        lines.plan.jobs[name].folder = lambda results, name=name: tmp_path / name
        lines.plan.jobs[name].outputs = lambda name=name: [tmp_path / name / "run.mllog"]
        terminals.filter(
            record("", event="job_info", rule_name="train", jobid=number, wildcards={"run": name})
        )
    reason.leave(tmp_path / left[0], "refused by SLURM", "invalid partition: x")
    (tmp_path / left[1] / ".partial").mkdir(parents=True)
    (tmp_path / left[1] / ".partial/stopped").touch()
    for number in (0, 1):
        assert not terminals.filter(record("", logging.ERROR, event="job_error", jobid=number))
    failed, why, stopped, words = capsys.readouterr().err.splitlines()
    assert missing(failed, "10 of 31", "1 failed") == missing(stopped, "10 of 31", "1 failed") == []
    assert why == f"    {left[0]}: invalid partition: x"
    assert words == f"    {left[1]}: {reason.STOPPED}"


def test_a_job_that_is_no_run_says_why_it_failed(
    capsys: pytest.CaptureFixture[str], attached: Any
) -> None:
    _, terminals = attached([])
    about = {"event": "job_error", "jobid": 3, "rule_name": "preflight", "log": ["preflight.log"]}
    assert not terminals.filter(record("", logging.ERROR, rule_msg="invalid partition: x", **about))
    (line,) = capsys.readouterr().err.splitlines()
    assert missing(line, "preflight failed: ", "invalid partition: x", "preflight.log") == []


def test_snakemakes_lines_are_shown_where_they_are_wanted(attached: Any) -> None:
    info, error = record("Select jobs"), record("WorkflowError: ...", logging.ERROR)
    for whole, shown in ((False, [False, True]), (True, [True, True])):
        _, terminals = attached([], whole=whole)
        assert [bool(terminals.filter(one)) for one in (info, error)] == shown
    _, terminals = attached([])
    for (
        ending
    ) in snakemake_lines.ENDING:  # somebody pressed Ctrl-C, and wants to know whether it was heard
        assert terminals.filter(record(f"{ending}, and more"))
    _, dry = attached([], starts=False)
    assert dry.filter(info) and dry.filter(record("Nothing to be done (...)"))
    early = ("Building DAG of jobs...", "Config file a is extended by")
    assert not any(dry.filter(record(one)) for one in early)


def test_events_that_snakemake_has_no_more_are_one_line(
    attached: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(snakemake_lines.EVENTS, "JOB_LOST", "ended")
    with refuses(ReleaseError, "snakemake", "JOB_LOST", "patches/snakemake_lines.py"):
        attached([])


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("columns", [0, 20, 40, 80, 200])
def test_a_line_fits_a_narrow_terminal(columns: int) -> None:
    said = terminal.line(plan(), NAMES[0], set(NAMES[1:]), set(), time.time() + 60, columns)
    assert said.startswith("1 of 31 runs done"[:columns] if columns else "1 of 31 runs done")
    assert "\n" not in said and "\x1b" not in said
    assert not columns or len(said) <= columns


def test_the_terminal_ends_with_the_answers_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    study = Path(terminal.layout.page("demo/local")).with_name("study.json")
    assert terminal.answers(plan()) == []
    study.parent.mkdir(parents=True)
    study.write_text('{"screen": ["Which framework? ddp"]}')
    assert terminal.answers(plan()) == ["Which framework? ddp"]
    assert terminal.answers(plan(), time.time() + 9) == []  # it is that of another call
    study.write_text("{}")
    assert terminal.answers(plan()) == []


def test_the_rate_is_that_of_the_page(tmp_path: Path) -> None:
    """That of the steps, without validation and warm-up."""
    specs = [run_spec(global_batch=4, repeat=n, timed=n == 1) for n in (1, 2)]
    folders = [write_record(tmp_path / "runs", spec) for spec in specs]
    runs, _ = tables(tmp_path / "tables", *folders)
    rates = runs.set_index("run")["throughput_images_per_s"]
    assert terminal.rate_of_steps(folders[0]) == pytest.approx(rates[specs[0].id])
    assert terminal.rate_of_steps(folders[1]) is None  # it shared the machine
    assert terminal.rate_of_steps(tmp_path) is None
    script = "import sys; from pathlib import Path; from ddlbench.commands import terminal\n"
    script += "print(terminal.rate_of_steps(Path(sys.argv[1])), 'pandas' in sys.modules)"
    asked = subprocess.run(
        [sys.executable, "-c", script, folders[0]], capture_output=True, text=True, check=True
    )
    assert asked.stdout.split() == [
        str(rates[specs[0].id]),
        "False",
    ]  # Snakemake's own process asks
    damaged = folders[0] / "run.mllog"
    damaged.write_text(damaged.read_text().replace("1", "2"))
    assert terminal.rate_of_steps(folders[0]) is None


def test_an_end_tomorrow_says_its_day() -> None:
    assert (
        terminal.line(plan(), NAMES[0], {NAMES[1]}, set(), time.time() + 2 * 86400)
        .split("end ")[1][:3]
        .isalpha()
    )


@pytest.mark.parametrize(
    ("shows", "dryrun", "told"), [(False, True, 0), (True, True, 1), (False, False, 1)]
)
def test_a_dry_run_that_shows_no_jobs_formats_none(
    monkeypatch: pytest.MonkeyPatch, shows: bool, dryrun: bool, told: int
) -> None:
    from snakemake.jobs import Job

    jobs: list[Any] = []
    monkeypatch.setattr(Job, "log_info", jobs.append)
    output = SimpleNamespace(verbose=False, printshellcmds=shows, dryrun=dryrun)
    terminal.attach(SimpleNamespace(output_settings=output, is_main_process=True))
    Job.log_info("a job")
    assert len(jobs) == told


def test_a_line_says_what_differs_in_the_study() -> None:
    models = [
        run_spec(model=model, repeat=repeat, workers=2)
        for model in ("lenet", "resnet18")
        for repeat in (1, 2)
    ]
    assert terminal.varying(models) == ("model", "repeat")
    batches = [run_spec(workers=workers, global_batch=64 * workers) for workers in (1, 2)]
    assert terminal.varying(batches) == ()
    short = [run_spec(epochs=epochs, of_epochs=None) for epochs in (1, 8)]
    assert terminal.varying(short) == ("of_epochs",)  # each trains all of its epochs
    assert terminal.varying([*short, run_spec(epochs=2, of_epochs=8)]) == ("epochs", "of_epochs")
    sizes = [run_spec(workers=2, global_batch=batch) for batch in (64, 128)]
    assert terminal.varying(sizes) == ("global_batch",)
    given = plan()
    for name, spec in zip(NAMES, [*models, *sizes], strict=False):
        given.jobs[name].spec = spec
    said = {
        terminal.line(given, name, set(), set(), None, varies=("model", "repeat"))
        for name in NAMES[:4]
    }
    assert len(said) == 4 and all("lenet" in one or "resnet18" in one for one in said)
    last = terminal.line(given, NAMES[1], set(), set(), None, varies=("model", "repeat"))
    assert last.endswith("lenet, repeat 2")
    (failed,) = {
        terminal.line(given, NAMES[2], set(), {NAMES[2]}, None, varies=("model", "repeat"))
    }
    assert "resnet18" in failed and "failed" in failed


def test_settings_of_a_program_are_what_differs() -> None:
    given = {
        "machine": "local",
        "device": "cpu",
        "workers": 2,
        "workers_per_node": 2,
        "global_batch": 8,
    }
    specs = [
        of_program(Program(name="mine", command="x", settings=(("lr", lr),)), **given)
        for lr in (0.1, 0.2)
    ]
    assert terminal.varying(specs) == ("settings",)
