"""From the configuration and run folders to the files of the section. `snakemake application` calls it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ddlbench.analysis.prediction import _table
from ddlbench.core import layout, registry
from ddlbench.core.files import sha256
from ddlbench.core.record import MLLOG
from ddlbench.outlook.application._content import Given, blocks
from ddlbench.outlook.study import given
from ddlbench.plan import bill, reads


def make(config: Mapping[str, Any], folders: Sequence[Path], results: Path = layout.RESULTS) -> str:
    """Writes the section in all formats; their paths, one a line. Raises NoAnswerError, ConfigError."""
    of = given(config, folders, results)
    study, machine, runs = of.study, of.machine, of.tables["runs"]
    usable = runs[runs["throughput_images_per_s"].notna()]
    figures = {f.title: of.figure(f.name) for f in study.figures if "efficiency" in f.plot}
    others = of.tables["submissions"]  # of others' records the file of each
    with of.named():
        section = blocks(
            Given(
                title=study.title,
                machine=machine,
                runs=runs,
                comparisons=of.tables["comparisons"],
                predictions=_table.rows(usable, machine.workers_per_node, of.planned_workers()) if len(usable) else [],
                bill=bill.rows(of.plan, of.images, results),
                digests={folder.name: sha256(folder / MLLOG) for folder in folders if (folder / MLLOG).exists()}
                | {row["run"]: sha256(Path(row["file"])) for row in others.to_dict("records")},
                forms=reads.forms(of.plan, config["data"]["sources"]),
                figures={title: path for title, path in figures.items() if path.with_name(f"{path.name}.png").exists()},
            )
        )
    out = results / of.plan.home / "application"
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in registry.members("application"):
        member = registry.member("application", name)
        paths.append(out / f"scaling-{machine.name}{member.SUFFIX}")
        member.write(section, paths[-1])
    return "\n".join(map(str, paths))
