"""What predictions start from: a study, its machine, its plan, and tables of the records that are
there now.

Tables are made anew, in a folder of their own, so that one can ask while the study is not finished.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ddlbench.analysis import refusals, together
from ddlbench.analysis.collect import collect
from ddlbench.analysis.sheets import Costs, Planned
from ddlbench.core import files, layout, registry
from ddlbench.outlook import NoAnswerError
from ddlbench.plan import reads
from ddlbench.plan.values import Plan
from ddlbench.show.figures import Options


@dataclass(frozen=True)
class StudyData:
    """The data that predictions start from.

    `tables` are those of `collect`, by name; `refused` are lines about records that are in none of
    them.
    """

    plan: Plan
    tables: Mapping[str, pd.DataFrame]
    refused: Sequence[str]
    results: Path

    @contextmanager
    def with_context(self) -> Iterator[None]:
        """Add the names of study and machine to an error of the block."""
        try:
            yield
        except NoAnswerError as error:
            # Records of others were made on no machine of ours.
            where = "" if self.plan.study.records else f" on machine {self.plan.machine.name}"
            raise NoAnswerError(f"study {self.plan.study.name}{where}: {error}") from None

    def planned_workers(self) -> list[int]:
        """Return the worker counts of the plan."""
        return sorted({run.spec.workers for run in self.plan.runs.values()})

    def write_table(self, name: str, rows: Sequence[Mapping[str, Any]]) -> Path:
        """Write `<results>/<study>/<machine>/tables/<name>.csv`; the file appears complete or not
        at all.
        """
        path = self.results / self.plan.home / "tables" / f"{name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.aside(path) as temporary:
            pd.DataFrame(rows).to_csv(temporary, index=False)
        return path

    def figure(self, name: str) -> Path:
        """Return where a figure of the study lies, without suffix; its folder is made."""
        path = self.results / self.plan.home / "figures" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def options(self) -> Options:
        """Return how its figures are drawn."""
        device = "accelerator" if self.plan.study.records else self.plan.machine.device
        names = tuple(sorted({run.spec.framework for run in self.plan.runs.values()}))
        sample = together.sample(self.tables["runs"])
        return Options(
            self.plan.study.title, device, self.plan.machine.device_name, names, sample=sample
        )


def read_study(
    config: Mapping[str, Any], folders: Sequence[Path], results: Path = layout.RESULTS
) -> StudyData:
    """Read the plan and the tables of a checked configuration; `folders` are those of the runs.

    Raises ConfigError.
    """
    plan, _ = reads.plan_of(config)
    with tempfile.TemporaryDirectory() as aside:
        others = plan.study.records
        read = {} if others is None else {"read": registry.member("records", others.kind).read}
        planned = Planned(plan.digests, scaling=plan.scaling)
        collect(
            folders,
            Path(aside),
            planned,
            Costs(peaks=dict(plan.machine.peak_tflops_per_worker)),
            **read,
        )
        tables = {path.stem: pd.read_parquet(path) for path in Path(aside).glob("*.parquet")}
        refused = refusals.lines(refusals.read(Path(aside)))
    return StudyData(plan, tables, refused, results)
