"""What the shipped studies plan: counts that their comments derive, and blocks that one borrows
from another.
"""

import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from ddlbench.core.spec import steps_per_epoch
from ddlbench.plan import bill, reads
from ddlbench.plan.runs import figure_runs, make_plan, non_training_tables, parts
from ddlbench.plan.values import Plan
from ddlbench.settings.config import CONFIG, ConfigError
from ddlbench.settings.machine import load_machine
from ddlbench.settings.study import load_study
from ddlbench.show.page import about

from tests.builders.machines import JUWELS, LAPTOP
from tests.conftest import ROOT
from tests.facts import refuses
from tests.unit.spoiled import bad_input

SHORT_ADDS = {
    "resnet50-dali": 108,
    "resnet50-native": 96,
    "resnets": 54,
    "resnet101-dali": 27,
    "resnet101-native": 48,
    "schedules": 81,
    "profiled-dali": 72,
    "profiled-native": 63,
    "profiled-4": 18,
    "ours": 3 * 2 * 9 * 3,
    "ours-loaders": 2 * 8 * 3,
    "ours-ceiling": 3 * 9 * 3,
    "mlperf-lars/bs65536": 5,
}


def adds(plan: Plan) -> dict[str, int]:
    """How many runs each block adds to those of the blocks before it."""
    seen: set[str] = set()
    new = {}
    for block, runs in plan.blocks.items():
        new[block] = len(set(runs) - seen)
        seen |= set(runs)
    return new


def test_aach2023_short_is_the_papers_matrix_and_ours(paper: Plan) -> None:
    short = make_plan(load_study("aach2023-short"), JUWELS)
    assert adds(short) == SHORT_ADDS
    assert len(short.runs) == 863
    for block, runs in paper.blocks.items():
        of = [short.runs[run].spec for run in short.blocks[block]]
        if block == "schedules" or block.startswith(
            "profiled"
        ):  # the same runs, made once for both studies
            assert short.blocks[block] == runs
        else:  # the same but for their length
            assert {(spec.epochs, spec.of_epochs) for spec in of} == {(3, 90)}
            full = [replace(spec, epochs=90, of_epochs=None) for spec in of]
            assert full == [paper.runs[run].spec for run in runs]
    for figure in load_study("aach2023").figures:
        (same,) = (one for one in short.study.figures if one.name == figure.name)
        assert same == figure
    for block in ("ours", "ours-loaders", "ours-ceiling"):
        assert {short.runs[run].spec.epochs for run in short.blocks[block]} == {3}


def test_a_goal_is_in_no_runs_id_and_on_the_page(tmp_path: Path) -> None:
    shutil.copytree(CONFIG, tmp_path / "config")
    path = tmp_path / "config/studies/demo.yaml"
    plain = make_plan(load_study("demo", path.parent), load_machine("local"))
    path.write_text(path.read_text().replace("repeats: 3", "repeats: 3\ngoal: cheapest"))
    wanted = make_plan(load_study("demo", path.parent), load_machine("local"))
    assert [job.spec.to_json() for job in wanted.runs.values()] == [
        job.spec.to_json() for job in plain.runs.values()
    ]
    assert (about.from_plan(plain, (), {}).goal, about.from_plan(wanted, (), {}).goal) == (
        "balanced",
        "cheapest",
    )


def test_runs_that_are_borrowed_are_their_own_studys() -> None:
    short, lars = (
        make_plan(load_study(name), JUWELS) for name in ("aach2023-short", "mlperf-lars")
    )
    borrowed = short.blocks["mlperf-lars/bs65536"]
    assert borrowed == lars.blocks["bs65536"]
    assert all(short.runs[run].spec == lars.runs[run].spec for run in borrowed)
    shown = figure_runs(short, "accuracy-lars")
    assert shown is not None
    assert len(shown) == 81 + 5
    assert set(borrowed) < set(shown)


OVER_A_CABLE = ("deepspeed-features-bandwidth", "deepspeed-features-bytes", "tuning-small")


@pytest.mark.parametrize("name", sorted(path.stem for path in (CONFIG / "studies").glob("*.yaml")))
def test_a_figure_waits_for_its_own_runs_and_no_others(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule figure_data reads the sets of runs that the plan gives to a figure, rule collect those
    that are blocks.
    """
    (tmp_path / "training_results_v2.0").mkdir()  # study mlperf reads it
    monkeypatch.chdir(tmp_path)
    plan = make_plan(
        load_study(name), load_machine("local-netem" if name in OVER_A_CABLE else "juwels-booster")
    )
    split = parts(plan)
    assert {run for part in split.whole for run in split.runs[part]} == {*plan.runs}
    assert split.runs.keys() == {
        *split.whole,
        *(part for names in split.of_figure.values() for part in names),
    }
    assert plan.study.figures
    for figure in plan.study.figures:
        given = {run for part in split.of_figure[figure.name] for run in split.runs[part]}
        of_blocks = {run for block in figure.runs for run in plan.blocks[block]}
        columns = {run: plan.runs[run].spec.columns() for run in of_blocks}
        chosen = {
            run
            for run in of_blocks
            if all(columns[run][key] in values for key, values in figure.select)
        }
        nothing = bool(
            plan.study.records or non_training_tables(figure.plot)
        )  # tables have what such a figure shows
        assert given == (set() if nothing else chosen), figure.name
        assert nothing or given


def borrowing(folder: Path, runs: list[str]) -> Path:
    """A folder like config/ with a copy of study demo whose only figure shows these runs; others
    are as they are.
    """
    (folder / "recipes").symlink_to(CONFIG / "recipes")
    (folder / "references").symlink_to(CONFIG / "references")
    studies = folder / "studies"
    studies.mkdir()
    for name in ("demo", "frameworks", "mlperf"):
        (studies / f"{name}.yaml").write_text((CONFIG / f"studies/{name}.yaml").read_text())
    mine = yaml.safe_load((studies / "demo.yaml").read_text())
    mine["figures"] = {"memory": {"plot": "memory", "runs": runs}}
    (studies / "mine.yaml").write_text(yaml.safe_dump(mine))
    return studies


def test_a_figure_that_names_a_block_twice_or_that_of_two_studies(tmp_path: Path) -> None:
    studies = borrowing(tmp_path, ["demo/loaders", "loaders", "frameworks/all"])
    plan = make_plan(load_study("mine", studies), load_machine("local"))
    assert plan.blocks["demo/loaders"] == plan.blocks["loaders"]
    assert len(plan.runs) == 27 + 18
    assert len(figure_runs(plan, "memory") or ()) == 12 + 18


@pytest.mark.parametrize(("named", "facts"), bad_input("borrowed"))
def test_a_block_that_cannot_be_borrowed_is_one_line(
    tmp_path: Path, named: str, facts: tuple[str, ...]
) -> None:
    studies = borrowing(tmp_path, [named])
    with refuses(ConfigError, f"{studies / 'mine.yaml'}: figures.memory.runs", *facts):
        load_study("mine", studies)


def test_published_records_and_runs_are_not_mixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    studies = borrowing(tmp_path, ["loaders"])
    (tmp_path / "training_results_v2.0").mkdir()
    monkeypatch.chdir(tmp_path)
    published = yaml.safe_load((studies / "mlperf.yaml").read_text())
    published["figures"]["throughput"]["runs"] = ["demo/loaders"]
    (studies / "mlperf.yaml").write_text(yaml.safe_dump(published))
    with refuses(ConfigError, 'figures: ["demo/loaders"]', "no runs"):
        load_study("mlperf", studies)


def test_a_mistake_in_a_study_that_lends_is_told_of_that_study(tmp_path: Path) -> None:
    studies = borrowing(tmp_path, ["frameworks/all"])
    lender = studies / "frameworks.yaml"
    lender.write_text(lender.read_text().replace("recipe: demo", "recipe: dmeo"))
    with refuses(ConfigError, f"{lender}: recipe: ", "demo?"):
        load_study("mine", studies)


SMALL = {
    "aach2023-small": {
        "dali": 12,
        "native": 18,
        "ours": 6,
        "ceiling": 2,
        "schedules": 18,
        "profiled": 4,
    },
    "liang2023-small": {"example": 18, "sgd": 18, "adam": 18},
    "horovod-vs-deepspeed-small": {"all": 30, "interrupted": 10},
    "loaders-small": {"preferred": 30, "webdataset": 18},
    "deepspeed-features-small": {
        "adam": 12,
        "zero-one": 1,
        "lamb": 6,
        "layer-dropping": 3,
        "tables": 2,
    },
}
RUN_S = 14  # what one such run takes on two cores, nearly all of it start-up


@pytest.mark.parametrize("name", SMALL)
def test_small_twins_fit_two_cores_and_a_quarter_of_an_hour(name: str) -> None:
    plan = make_plan(load_study(name), LAPTOP)
    assert adds(plan) == SMALL[name]
    assert len(plan.runs) * RUN_S <= 15 * 60
    for job in plan.runs.values():
        assert job.spec.workers <= 2
        learns = (
            name == "deepspeed-features-small"
        )  # it asks what its optimizers learn, in the runs that it times
        assert job.spec.epochs <= (1 if not learns and (job.spec.timed or job.spec.profiled) else 8)
    for figure in plan.study.figures:
        assert figure_runs(plan, figure.name)


def test_liang2023_small_has_nine_settings() -> None:
    specs = [job.spec for job in make_plan(load_study("liang2023-small"), LAPTOP).runs.values()]
    assert len({(spec.model, spec.recipe.name) for spec in specs}) == 9
    assert {spec.framework for spec in specs} == {"ddp", "deepspeed"}


def test_loaders_small_reads_each_form_with_every_loader_that_can() -> None:
    specs = [job.spec for job in make_plan(load_study("loaders-small"), LAPTOP).runs.values()]
    assert {(spec.loader, spec.reads) for spec in specs} == {
        ("synthetic", None),
        *((loader, "webdataset") for loader in ("native", "spdl", "dali-cpu")),
        *(("torchvision", "raw"), ("native", "raw"), ("spdl", "raw"), ("dali-cpu", "tfrecord")),
    }


def test_small_twins_share_runs_with_the_demo(demo: Plan) -> None:
    shared = {
        name: len(make_plan(load_study(name), LAPTOP).runs.keys() & demo.runs.keys())
        for name in SMALL
    }
    assert {name: count for name, count in shared.items() if count} == {"aach2023-small": 6}


def test_deepspeed_features_freeze_while_there_are_steps_to_compress() -> None:
    machines = {"": JUWELS, "-small": LAPTOP, "-bandwidth": load_machine("local-netem")}
    plans = {
        of: make_plan(load_study(f"deepspeed-features{of}"), machine)
        for of, machine in machines.items()
    }
    assert adds(plans[""]) == {
        "speed-adam": 5 * 5 * 3,
        "speed-lamb": 2 * 5 * 3,
        "full-adam": 5 * 3,
        "full-lamb": 2 * 3,
        "tables": 2,
        "asked": 1,
    }
    jobs = [job.spec for job in plans[""].non_training.values()]
    ways = {
        "plain": [1],
        "compiled": [1],
        "deepspeed-engine": [1],
        "int8": [1],
        "tensor-slicing": [2, 4],
    }
    asked = Counter((spec.member, spec.workers) for spec in jobs)
    assert asked == {(member, workers): 3 for member, counts in ways.items() for workers in counts}
    assert {(spec.run.id, spec.run.recipe.precision, spec.trained) for spec in jobs} == {
        (plans[""].blocks["asked"][0], "bf16", True)
    }
    assert adds(plans["-bandwidth"]) == {"adam": 5 * 3 * 2, "lamb": 2 * 3 * 2}
    for plan in plans.values():
        images = {"imagenet": 1_281_167, "mnist5k": 4000}
        for job in plan.runs.values():
            spec = job.spec
            steps = spec.epochs * steps_per_epoch(images[spec.dataset], spec.global_batch)
            if spec.adapter == "deepspeed" and spec.option("compression") != "none":
                assert spec.option("freeze_step") <= 0.65 * steps
            if spec.adapter == "deepspeed" and spec.option(
                "progressive_layer_dropping"
            ):  # arXiv:2010.13369
                assert spec.option("layer_dropping_gamma") == pytest.approx(100 / steps, rel=0.01)


def test_horovod_vs_deepspeed_is_planned_on_juwels() -> None:
    plan = make_plan(load_study("horovod-vs-deepspeed"), JUWELS)
    assert adds(plan) == {"all": 2 * 5 * 6 * 3, "interrupted": 2 * 5 * 3 * 3}
    killed = [plan.runs[run].spec for run in plan.blocks["interrupted"]]
    assert {spec.interrupt_steps for spec in killed} == {200}
    assert {steps_per_epoch(1_281_167, spec.global_batch) for spec in killed} == {313, 1252, 5005}
    assert all(plan.runs[run].spec.interrupt_steps is None for run in plan.blocks["all"])


@pytest.mark.parametrize(
    ("name", "per_node", "cores", "gpus", "queue"),
    [
        ("juwels-booster", 4, 12, "A100", ("develbooster", None, None)),
        ("jupiter-booster", 4, 72, "GH200", ("booster", None, None)),
        ("leonardo", 4, 8, "A100", ("boost_usr_prod", None, None)),
        ("marenostrum5", 4, 20, "H100", ("acc", "acc_ehpc", None)),
        ("perlmutter", 4, 16, "A100", ("gpu_ss11", "regular", "gpu&hbm40g")),
        ("dgx-h100", 8, 14, "H100", None),
        ("workstation", 1, 8, None, None),
    ],
)
def test_every_machine_is_planned(
    name: str, per_node: int, cores: int, gpus: str | None, queue: tuple[str | None, ...] | None
) -> None:
    """Whole nodes, each core once; and each file says that it was tried nowhere, unless it
    describes none.
    """
    machine = load_machine(name)
    assert (machine.workers_per_node, machine.cores_per_worker) == (per_node, cores)
    assert gpus is None or gpus in str(machine.gpu_name)
    assert gpus is None or "NEVER TRIED" in (ROOT / f"config/machines/{name}.yaml").read_text()
    study = load_study("horovod-vs-deepspeed" if queue else "one-gpu")
    blocks = (
        study.blocks if queue else tuple(replace(block, workers=(1,)) for block in study.blocks)
    )
    plan = make_plan(replace(study, blocks=blocks, figures=()), machine, "mine")
    for job in plan.runs.values():
        asked = job.resources
        if queue is None:
            assert "srun" not in str(asked["launch"])
            continue
        assert (asked.get("qos"), asked.get("constraint")) == queue[1:]
        assert asked["slurm_partition"] == queue[0] or name == "juwels-booster"  # it has several
        assert f"--cpus-per-task={cores} " in str(asked["launch"])
        assert f"--gres=gpu:{job.spec.workers_per_node} " in str(asked["launch"])
        assert int(str(asked["runtime"])) <= max(
            partition.max_minutes for partition in machine.partitions
        )


@pytest.mark.parametrize("name", ["aach2023", "aach2023-short"])
def test_small_machines_are_told_of_the_twin(name: str) -> None:
    with refuses(ConfigError, "study aach2023-small"):
        make_plan(load_study(name), LAPTOP)


def test_docs_name_every_study_and_its_runs() -> None:
    """One row per shipped study, with the count that planning gives."""
    text = (ROOT / "docs/studies.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([\w-]+)` \| [^|]+ \| (\d+|none) \|", text, re.M))
    shipped = {path.stem for path in (CONFIG / "studies").glob("*.yaml")}
    assert set(rows) == shipped, (
        f"docs/studies.md needs one row for each of {sorted(shipped ^ set(rows))}"
    )
    machines = dict.fromkeys(rows, JUWELS) | dict.fromkeys(
        [*SMALL, "demo", "frameworks", "inference-small"], LAPTOP
    )
    machines |= dict.fromkeys(OVER_A_CABLE, load_machine("local-netem"))
    assert rows.pop("mlperf") == "none"  # records of others
    assert rows == {
        name: str(len(make_plan(load_study(name), machines[name]).runs)) for name in rows
    }


def test_docs_have_the_gpu_hours_that_the_plan_has(tmp_path: Path) -> None:
    text = (ROOT / "docs/studies.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \| [^|]+ \| \d+ \| ([\d. ]+) GPU hours", text, re.M)
    assert len(rows) >= 7
    for name, hours in rows:
        plan = make_plan(load_study(name), JUWELS)
        likely = bill.gpu_hours(bill.rows(plan, reads.images(plan.study, JUWELS, {}), tmp_path))[0]
        assert float(hours.replace(" ", "")) == pytest.approx(likely, rel=0.02), (
            f"docs/studies.md: {name}"
        )
