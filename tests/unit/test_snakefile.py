"""What the Snakefile is told: when training may start, and what Snakemake compares of a run."""

import inspect
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ddlbench.commands import checks, configuration, snakefile
from ddlbench.commands.job_rule import JobRule
from ddlbench.commands.start import Start
from ddlbench.core import layout, registry
from ddlbench.patches import snakemake_python
from ddlbench.plan import reads
from ddlbench.preflight import promise
from ddlbench.run import survivors
from ddlbench.settings.config import ConfigError
from snakemake.common import get_function_params
from snakemake.script import PythonScript

from tests.builders.records import write_record
from tests.facts import missing, refuses

STARTS_JOBS = {"is_main_process": True, "executor_plugin": object(), "dryrun": False, "cores": 2}


class Waits(Exception):
    """Stands for Snakemake's word that a checkpoint is still to be made."""


def training(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, calls: list[str], **state: Any
) -> JobRule:
    """Rule train of study `demo`; `calls` notes what is asked before training starts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(survivors, "settle", lambda *_: calls.append("settle"))
    monkeypatch.setattr(reads, "check_software", lambda *_: calls.append("installed"))

    def get() -> None:
        calls.append("preflight")
        raise Waits

    dag = SimpleNamespace(
        forcefiles=set(),
        forcerules=set(),
        targetfiles=set(),
        rules=[],
        untilrules=set(),
        targetrules=set(),
    )
    persistence = SimpleNamespace(
        path="", _filter_incomplete_keys=lambda outputs: set(), _unmark_incomplete=None
    )
    quiet = SimpleNamespace(verbose=False, printshellcmds=False, dryrun=False)
    about = {"persistence": persistence, "dag": dag, "output_settings": quiet}
    workflow = SimpleNamespace(**(about | STARTS_JOBS | state))
    checkpoints = SimpleNamespace(preflight=SimpleNamespace(get=get))
    return JobRule(
        Start(workflow, configuration.read({"study": "demo", "machine": "local"})),
        "train",
        checkpoints,
    )


def wildcards(of: JobRule) -> Any:
    return SimpleNamespace(run=next(run for run, job in of.plan.runs.items() if job.manifest))


def test_training_waits_for_what_comes_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    calls: list[str] = []
    of = training(monkeypatch, tmp_path, calls)
    assert of.new_preflights(None) == [promise.path(of.plan)]
    for _ in range(2):
        with pytest.raises(Waits):
            of.input(wildcards(of))
    assert calls == ["installed", "settle", "preflight", "preflight"]
    assert of.start.workflow.dag.forcefiles == {
        of.start.preflight
    }  # made again, whatever Snakemake remembers of it
    of.start.waits = False
    assert of.new_preflights(None) == []
    assert of.input(wildcards(of)) == of.plan.runs[wildcards(of).run].manifest
    assert len(calls) == 4


@pytest.mark.parametrize(
    "changes", [{"dryrun": True}, {"is_main_process": False}, {"executor_plugin": None}]
)
def test_whoever_starts_no_jobs_waits_for_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, changes: dict[str, Any]
) -> None:
    calls: list[str] = []
    of = training(monkeypatch, tmp_path, calls, **changes)
    assert of.input(wildcards(of)) == of.plan.runs[wildcards(of).run].manifest
    assert calls == ["installed"]


def test_a_record_of_other_settings_and_one_that_lacks_its_steps_are_made_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Once for all runs; those without a record Snakemake makes by itself."""
    of = training(monkeypatch, tmp_path, [], dryrun=True)
    same, other, cut, *_ = of.plan.runs
    for run, settings in ((other, same), (same, same), (cut, cut)):
        write_record(Path(layout.runs()), of.plan.runs[settings].spec, images=128).rename(
            layout.run(run)
        )
    Path(layout.run_steps(cut)).unlink()
    of.input(wildcards(of))
    expected = {of.start.preflight, layout.run_log(other), layout.run_log(cut)}
    assert of.start.workflow.dag.forcefiles == expected


def test_a_run_that_the_plan_has_not_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """As in a job, after the study was edited while it waited."""
    of = training(monkeypatch, tmp_path, [], is_main_process=False)
    with pytest.raises(SystemExit) as ended:
        of.input(SimpleNamespace(run="gone-r1"))
    assert missing(ended.value, "gone-r1", "study demo", "machine local") == []


def test_a_complaint_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    def complain(*_: Any) -> None:
        raise ConfigError("demo.yaml: no such thing")

    of = training(monkeypatch, tmp_path, [])
    monkeypatch.setattr(reads, "check_software", complain)
    with pytest.raises(SystemExit, match=r"^demo.yaml: no such thing$"):
        of.input(wildcards(of))


def test_snakemake_compares_what_is_trained_and_not_how_it_is_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    of = training(monkeypatch, tmp_path, [])
    run = wildcards(of)
    assert of.spec(run) == of.plan.runs[run.run].spec.to_json()
    assert set(of.resources) == {*of.plan.runs[run.run].resources}
    assert of.resources["launch"](run, 1) == of.plan.runs[run.run].resources["launch"]
    assert of.start.supervision.startswith(f"--preflight={promise.path(of.plan)}")
    for function in (of.input, of.threads, of.spec, of.priority, of.resources["launch"]):
        parameters = get_function_params(function)
        assert [*parameters] == [*inspect.signature(function).parameters]
        assert (
            get_function_params(function) is parameters
        )  # 5000 runs plan in the time of 5000 bare jobs


def test_the_first_run_of_the_order_has_the_highest_priority(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    of = training(monkeypatch, tmp_path, [])
    priorities = [of.priority(SimpleNamespace(run=run)) for run in of.plan.order]
    assert priorities == sorted(priorities, reverse=True) and len(set(priorities)) == len(
        of.plan.runs
    )
    assert min(priorities) > 0  # Snakemake would not start a job of less
    assert max(priorities) < len(of.plan.runs) + 2  # of rule prepare
    assert of.priority(SimpleNamespace(run="gone-r1")) > 0


@pytest.mark.parametrize("closed", [".", ".snakemake", ".snakemake/locks"])
def test_a_folder_of_another_user_is_named(
    closed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / closed / "locks").mkdir(parents=True)
    checks.check_folder(tmp_path)
    monkeypatch.setattr(
        "os.access", lambda path, _: Path(path) != tmp_path / closed
    )  # root may write anywhere
    with pytest.raises(SystemExit, match=f"^{tmp_path / closed}: not writable"):
        checks.check_folder(tmp_path)
    monkeypatch.setattr("os.statvfs", lambda path: SimpleNamespace(f_bavail=0, f_blocks=9))
    with refuses(SystemExit, f"{tmp_path}: ", "disk is full"):
        checks.check_folder(tmp_path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("study: demo\naccount: 2024-13-45\n", "month must be"),
        ("study: demo\nmachine: &m [*m]\n", "is not YAML: line 2, column 10: "),
        ("study: demo\nmax_gpu_hours: 1:30\n", 'max_gpu_hours: "1:30" '),
        ("study: !!int x\n", "line 1, column 8: !!int"),
        ("study: " + "[" * 5000 + "\n", "50 levels"),
    ],
)
def test_what_snakemake_would_stumble_over_is_one_line(
    tmp_path: Path, text: str, says: str
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit) as error, snakefile.complaints():
        configuration.load(file)
    assert str(error.value).startswith(f"{file}: ") and says in str(error.value)
    assert "\n" not in str(error.value)
    file.write_text("study: demo\n", encoding="utf-8")
    assert configuration.load(file) == {"study": "demo"}


def test_scripts_are_called_by_a_path_that_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snakemake puts Python's path into a shell's command as it is; a project may lie in
    `/scratch/$project x`.
    """
    called: list[Any] = []
    monkeypatch.setattr(
        PythonScript, "_execute_cmd", lambda self, command, **named: called.append(named)
    )
    for _ in range(2):
        snakemake_python.apply()
    PythonScript._execute_cmd(object(), "{py_exec} {fname:q}", py_exec="/p $x/python", fname="a b")
    assert called == [{"py_exec": "'/p $x/python'", "fname": "a b"}]


def test_nothing_starts_whose_data_lie_nowhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    of = training(monkeypatch, tmp_path, [])
    run = wildcards(of)
    of.start.workflow.dag.needrun_jobs = lambda: [
        SimpleNamespace(rule=SimpleNamespace(name="train"), wildcards=run)
    ]
    of.start.keep_limit()
    monkeypatch.setattr(
        registry.member("datasets", "synthetic_imagenet"), "NEEDS", "name the folder"
    )
    with refuses(
        SystemExit,
        "config/config.yaml: data.sources.synthetic-imagenet: ",
        "missing",
        "name the folder",
    ):
        of.start.keep_limit()


def test_a_figure_that_the_study_does_not_name_is_told_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plan = training(monkeypatch, tmp_path, []).plan
    for name in (
        "old.csv",
        "old.runs.csv",
        "old.png",
        "memory.csv",
        "memory.runs.csv",
        ".hidden.csv",
    ):
        path = Path(f"{layout.figure(plan.home, name)}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (line,) = checks.left_over(plan)
    assert line.startswith(layout.figure(plan.home, "old.csv"))


def test_digests_of_runs_that_the_plan_does_not_have_together_are_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    start = training(monkeypatch, tmp_path, []).start
    start.forget_parts()  # there are none
    (kept, *_), home = start.parts.runs, start.plan.home
    paths = [Path(layout.records(home, part)) for part in (kept, "0ld")]
    logs = [
        Path(layout.study_log(home, name)) for name in (f"records-{kept}", "records-0ld", "collect")
    ]
    for path in (*paths, *logs):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    start.forget_parts()
    assert [path.exists() for path in (*paths, *logs)] == [True, False, True, False, True]


JOB = [
    "--target-jobs",
    "train:run=a-r1",
    "train:run=b-r2",
    "--allowed-rules",
    "train",
    "--mode",
    "remote",
]


@pytest.mark.parametrize(
    ("arguments", "runs"),
    [
        (JOB, {"a-r1", "b-r2"}),
        (["-n", "train"], None),
        (["--target-jobs", "infer:job=a", "--cores", "all"], None),  # asks a run, so needs one more
        (
            ["--target-jobs", "train:run=a", "prepare:dataset=mnist5k,form=raw", "--cores", "all"],
            None,
        ),
        (["--target-jobs", "preflight:", "--cores", "all"], None),  # promises all runs
    ],
)
def test_a_job_reads_of_its_own_runs_alone(arguments: list[str], runs: set[str] | None) -> None:
    assert snakefile.own_runs(arguments) == runs


def test_what_a_job_is_told_of_its_run_is_what_the_whole_plan_says(tmp_path: Path) -> None:
    asked = {"study": "inference-small", "machine": "local"}
    whole = configuration.read(asked).plan
    name = whole.order[-1]
    alone = configuration.read(asked, {name}).plan
    assert [*alone.runs] == [*alone.places] == [name]
    assert alone.weights == whole.weights  # they become options of the run's command
    assert alone.non_training.keys() == whole.non_training.keys()
    mine, same = alone.runs[name], whole.runs[name]
    assert (mine.spec, mine.manifest, mine.resources) == (same.spec, same.manifest, same.resources)
    assert (alone.home, promise.path(alone)) == (whole.home, promise.path(whole))


API = """
from pathlib import Path
from snakemake.api import ConfigSettings, ResourceSettings, SnakemakeApi
with SnakemakeApi() as api:
    workflow = api.workflow(ResourceSettings(cores=1), ConfigSettings(), snakefile=Path("Snakefile"))
    workflow.dag().execute_workflow()
"""
MAIN = "import sys\nfrom snakemake.cli import main\nif __name__ == '__main__':\n    "


@pytest.mark.parametrize(
    ("script", "words", "is_command"),
    [
        (None, ["-m", "snakemake", "--cores", "1"], True),
        (
            f"{MAIN}sys.exit(main())",
            ["--cores", "1"],
            True,
        ),  # as pip writes a command, under whatever name
        (f"{MAIN}main(['--cores', '1'])", ["snakemake"], False),
        (API, ["snakemake"], False),
    ],
)
def test_a_call_by_another_program_is_told_from_snakemakes_command(
    tmp_path: Path, script: str | None, words: list[str], is_command: bool
) -> None:
    snake = "from ddlbench.commands import next_round\nonsuccess:\n    "
    (tmp_path / "Snakefile").write_text(
        f"{snake}Path('asked').write_text(str(next_round.is_command()))\nrule all:\n"
    )
    if script:
        (tmp_path / "smk").write_text(script)
        words = ["smk", *words]
    subprocess.run([sys.executable, *words], cwd=tmp_path, check=True)
    assert (tmp_path / "asked").read_text() == str(is_command)
