"""From the configuration and run folders to the files of the section. `snakemake application` calls it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ddlbench.analysis.collect import collect
from ddlbench.analysis.prediction import _table
from ddlbench.core import layout, registry
from ddlbench.core.files import sha256
from ddlbench.core.record import MLLOG
from ddlbench.outlook.application._content import Given, blocks
from ddlbench.plan import bill, reads, runs
from ddlbench.settings.machine import load_machine
from ddlbench.settings.study import load_study


def make(config: Mapping[str, Any], folders: Sequence[Path], results: Path = layout.RESULTS) -> list[Path]:
    """Writes the section in all formats; their paths. Raises NothingMeasuredError.

    Tables are made anew from the records that are there, so that it also works while a study is not finished.
    """
    study, machine = load_study(config["study"]), load_machine(config["machine"])
    images = reads.images(study, machine, config["data"]["sources"])
    plan = runs.make_plan(study, machine, config["account"], images)
    with tempfile.TemporaryDirectory() as aside:
        tables = Path(aside)
        read = {} if study.records is None else {"read": registry.member("records", study.records.kind).read}
        collect(folders, tables, dict(machine.peak_tflops_per_worker), runs.digests(plan), **read)
        measured = pd.read_parquet(tables / "runs.parquet")
        others = pd.read_parquet(tables / "submissions.parquet")  # of others' records the file of each
        comparisons = pd.read_parquet(tables / "comparisons.parquet")
    planned = sorted({run.spec.workers for run in plan.runs.values()})
    usable = measured[measured["throughput_images_per_s"].notna()]
    predicted = _table.rows(usable, machine.workers_per_node, planned) if len(usable) else []
    figures = {f.title: results / study.name / "figures" / f.name for f in study.figures if "efficiency" in f.plot}
    given = Given(
        title=study.title,
        machine=machine,
        runs=measured,
        comparisons=comparisons,
        predictions=predicted,
        bill=bill.rows(plan, images, results),
        digests={folder.name: sha256(folder / MLLOG) for folder in folders if (folder / MLLOG).exists()}
        | {row["run"]: sha256(Path(row["file"])) for row in others.to_dict("records")},
        forms=reads.forms(plan, config["data"]["sources"]),
        figures={title: path for title, path in figures.items() if path.with_name(f"{path.name}.png").exists()},
    )
    made = blocks(given)
    out = results / study.name / "application"
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in registry.members("application"):
        member = registry.member("application", name)
        paths.append(out / f"scaling-{machine.name}{member.SUFFIX}")
        member.write(made, paths[-1])
    return paths
