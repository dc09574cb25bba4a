"""How many pictures a form holds, and what forms and records weigh, as the plan counts them."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ddlbench.core import formatting, registry
from ddlbench.core.files import read_csv
from ddlbench.core.step_rows import STEP_COLUMNS, step_type
from ddlbench.core.step_table import writing_table
from ddlbench.data.prepare import prepare
from ddlbench.data.source import Place
from ddlbench.plan import bill, printed, reads
from ddlbench.plan.kinds.training import STEP_BYTES, guess_minutes
from ddlbench.plan.runs import make_plan
from ddlbench.plan.values import Plan
from ddlbench.settings.config import CONFIG, ConfigError
from ddlbench.settings.machine import load_machine
from ddlbench.settings.study import load_study

from tests.builders.machines import JUWELS
from tests.builders.plans import pick
from tests.facts import missing

LAPTOP = replace(load_machine("local"), workers_per_node=8)


def test_minutes_and_estimates_know_how_many_synthetic_pictures_there_are() -> None:
    study, machine = load_study("demo"), replace(LAPTOP, images_per_s=(("lenet", 10.0),))
    blocks = tuple(replace(block, dataset="synthetic-imagenet") for block in study.blocks)
    study = replace(study, blocks=blocks, figures=())
    sources = {"synthetic-imagenet": "train=20000,val=1000"}
    images = reads.images(study, machine, sources)
    assert images == {"synthetic-imagenet": 20000}
    assert reads.images(study, machine, {}) == {"synthetic-imagenet": 2000}
    spec = pick(make_plan(study, machine, images=images), workers=1, model="lenet")
    assert guess_minutes(spec, machine) == round(30 + 1.5 * 8 * 2000 / 10 / 60)
    assert guess_minutes(spec, machine, images=20000) == round(30 + 1.5 * 8 * 20000 / 10 / 60)
    with pytest.raises(ConfigError, match=r"data\.sources\.synthetic-imagenet: 'trian=1'"):
        reads.images(study, machine, {"synthetic-imagenet": "trian=1"})


def test_a_prepared_form_says_how_many_images_there_are(tmp_path: Path) -> None:
    prepare(
        "synthetic-imagenet",
        "raw",
        tmp_path / "synthetic-imagenet/raw",
        place=Place("train=40,val=20", tmp_path),
    )
    study = load_study("demo")
    blocks = tuple(replace(block, dataset="synthetic-imagenet") for block in study.blocks)
    machine = replace(LAPTOP, data=str(tmp_path))
    assert reads.images(replace(study, blocks=blocks), machine, {}) == {"synthetic-imagenet": 40}


@pytest.mark.more
@pytest.mark.parametrize("form", registry.members("forms"))
def test_a_form_needs_the_inodes_and_disk_that_were_said(form: str, tmp_path: Path) -> None:
    given = "train=300,val=100,classes=5"
    prepare("synthetic-imagenet", form, tmp_path / form, place=Place(given, tmp_path))
    files = [tmp_path / form, *(tmp_path / form).rglob("*")]
    member = registry.member("datasets", "synthetic-imagenet")
    size, inodes = registry.member("forms", form).needs(
        *member.expected(given), member.PICTURE_BYTES
    )
    assert inodes == len(files)
    there = sum(-(-f.stat().st_size // 4096) * 4096 for f in files if f.is_file())
    assert size == pytest.approx(there, rel=0.1)


def test_every_data_set_says_what_a_picture_weighs() -> None:
    for name in registry.members("datasets"):
        assert 100 < registry.member("datasets", name).PICTURE_BYTES < 1e6


def test_imagenet_in_class_folders_needs_no_disk_of_its_own(paper: Plan, tmp_path: Path) -> None:
    forms = {form.form: form for form in reads.forms(paper, {})}
    assert (
        forms["tfrecord"].inodes == 2307
    )  # 1024 + 128 shards and indices, two manifests, the folder
    assert forms["raw"].inodes > 1331167
    assert all(1.5e11 < form.bytes < 1.6e11 for form in forms.values())
    (tmp_path / "train").mkdir()
    forms = {form.form: form for form in reads.forms(paper, {"imagenet": str(tmp_path)})}
    assert (forms["raw"].bytes, forms["raw"].inodes) == (0, 6)
    assert forms["tfrecord"].bytes > 1.5e11


def test_a_row_of_steps_takes_what_was_said(tmp_path: Path) -> None:
    rng, rows = np.random.default_rng(1), 400_000
    whole = {
        "epoch": np.repeat(np.arange(10), rows // 10),
        "step": np.arange(rows) // 4,
        "rank": np.arange(rows) % 4,
    }
    whole |= {"images": np.full(rows, 64), "lr": np.repeat(rng.random(rows // 4), 4)}
    table = np.zeros(rows, dtype=step_type())
    for name in STEP_COLUMNS:
        table[name] = whole.get(name, rng.random(rows))
    with writing_table(tmp_path / "steps.parquet") as write:
        write(table)
    assert (tmp_path / "steps.parquet").stat().st_size / rows == pytest.approx(STEP_BYTES, rel=0.1)


def test_plan_and_bill_need_nothing_but_python(tmp_path: Path) -> None:
    """So that a login node can make it, and the Snakefile can keep its limit."""
    program = """
import sys
from pathlib import Path
from ddlbench.core import registry
from ddlbench.plan import bill, printed, reads, runs
from ddlbench.settings import machine, study
for room in ("frameworks", "loaders", "datasets", "forms"):
    for name in registry.members(room):
        registry.member(room, name)
s, m = study.load_study("aach2023"), machine.load_machine("juwels-booster")
images = reads.images(s, m, {})
p = runs.make_plan(s, m, None, images)
printed.lines(p, bill.rows(p, images, Path(sys.argv[1])), reads.forms(p, {}))
heavy = {"torch", "horovod", "deepspeed", "nvidia", "timm", "torchvision", "numpy", "pandas", "pyarrow", "PIL"}
print(" ".join(sorted(heavy & set(sys.modules))))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_what_the_queue_would_find_out_is_said_before(
    paper: Plan, demo: Plan, tmp_path: Path
) -> None:
    """ImageNet lies somewhere that only a person knows; SLURM may know no default account."""
    source, account = reads.remarks(paper, {}, paper.runs)
    assert source.startswith("config/config.yaml: data.sources.imagenet: ") and "missing" in source
    assert account.startswith("config/config.yaml: account: ") and "missing" in account
    assert reads.unnamed(paper, {}, paper.runs) == [source]
    given = {"imagenet": str(tmp_path / "gone")}
    told = make_plan(paper.study, JUWELS, "project")
    (gone,) = reads.remarks(told, given, told.runs)
    assert (
        missing(
            gone,
            f"config/config.yaml: data.sources.imagenet: {given['imagenet']} ",
            "does not exist",
        )
        == []
    )
    assert reads.unnamed(told, given, told.runs) == []
    Path(given["imagenet"]).mkdir()
    assert reads.remarks(told, given, told.runs) == reads.remarks(told, {}, []) == []
    assert reads.remarks(demo, {}, demo.runs) == []
    prepared = make_plan(paper.study, replace(JUWELS, data=str(tmp_path)), "project")
    for manifest in {job.manifest for job in prepared.runs.values() if job.manifest}:
        Path(manifest).parent.mkdir(parents=True)
        Path(manifest).write_text("{}")
    assert reads.remarks(prepared, {}, prepared.runs) == []  # who has the form needs no source


def test_the_plan_counts_data_and_records(paper: Plan, tmp_path: Path) -> None:
    table = bill.rows(paper, {"imagenet": 1281167}, tmp_path)
    records = sum(row.disk_bytes for row in table)
    data = sum(form.bytes for form in reads.forms(paper, {}))
    assert records > 0 and data > 0
    text = "\n".join(printed.lines(paper, table, reads.forms(paper, {})))
    (line,) = [line for line in text.splitlines() if "Disk" in line]
    assert missing(line, f"{formatting.amount((records + data) / 1e9)} GB") == []


@pytest.mark.slow
def test_sizes_that_figures_compute_with_are_those_of_the_models() -> None:
    import torch
    from ddlbench.train import models

    rows = read_csv(CONFIG / "references/model-sizes.csv")
    assert rows
    for row in rows:
        with torch.device("meta"):
            model = models.build(row["model"], 1000, int(row["image_size"] or 224))
        assert float(row["parameters"]) == sum(p.numel() for p in model.parameters()), row["model"]
        assert float(row["buffers"]) == sum(b.numel() for b in model.buffers()), row["model"]
