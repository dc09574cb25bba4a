"""`ddlbench export --to <kind>`: a study in the form of another program. A kind is one file of this
room.

Each is thin over `study.json` (`show/page/numbers.py`) and two tables. Where what a kind writes
with is not among ddlbench's own packages, `PACKAGE` names what to install.
"""

import json
import shutil
from pathlib import Path
from typing import Any, Protocol

import pandas as pd

from ddlbench.core import registry
from ddlbench.core.files import hidden_name
from ddlbench.settings.config import ConfigError
from ddlbench.show.page.numbers import FORM

CURVES = ("loss", "top1", "top5", "throughput_images_per_s", "lr")  # of table `epochs`


class Export(Protocol):
    """The contract of a file of this folder.

    The first line of the file's docstring names what it writes. The last line explains how to look
    at the result.
    """

    PACKAGE: str  # as pip names it, with the version that was tried; empty if nothing is needed

    def write(
        self, document: dict[str, Any], runs: pd.DataFrame, epochs: pd.DataFrame, folder: Path
    ) -> None:
        """Fill the empty `folder` with the study `document`, its runs and their epochs."""


def export(kind: str, home: Path) -> Path:
    """Write the study whose page lies in the folder `home`, and return the new folder.

    It is whole, and replaces an older one.

    Raises ConfigError where the study has no `study.json` of this version, or the package is not
    installed.
    """
    member, source, out = (
        registry.member("exports", kind),
        home / "study.json",
        home / "export" / kind,
    )
    name = member.PACKAGE.partition("==")[0]
    if name and not registry.importable(name):
        raise ConfigError(
            f"--to {kind}: package {name} is not installed here; pip install {member.PACKAGE}"
        )
    try:
        document = json.loads(source.read_text(encoding="utf-8"))
    except OSError:
        todo = (
            "make it first: snakemake page, with the same options, or ddlbench partial for the runs"
            " that are there"
        )
        raise ConfigError(f"{source}: is not there; {todo}") from None
    if not isinstance(document, dict) or document.get("version") != FORM:
        raise ConfigError(
            f"{source}: expected version {FORM}; make it again: snakemake page"
        ) from None
    runs, epochs = (
        pd.read_parquet(home / "tables" / f"{table}.parquet") for table in ("runs", "epochs")
    )
    aside = out.with_name(hidden_name(kind))
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        member.write(document, runs[runs["run"].isin({run for point in document["points"] for run in point["runs"]})],
                     epochs, aside)  # fmt: skip
        shutil.rmtree(out, ignore_errors=True)
        aside.rename(out)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return out


def settings_by_run(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the settings of each run (id)."""
    return {run: point["settings"] for point in found["points"] for run in point["runs"]}


def curves(epochs: pd.DataFrame, run: str) -> list[tuple[str, float, int]]:
    """Return (name, value, epoch) of each value that an epoch of this run has."""
    rows = epochs[epochs["run"] == run]
    return [
        (name, float(value), int(epoch))
        for name in CURVES
        for epoch, value in zip(rows["epoch"], rows[name], strict=True)
        if not pd.isna(value)
    ]


def results(found: dict[str, Any], row: "pd.Series[Any]") -> dict[str, float]:
    """Return the quantities of one run that its point has."""
    run = row["run"]
    names = next(point["quantities"] for point in found["points"] if run in point["runs"])
    return {name: float(row[name]) for name in names if not pd.isna(row[name])}
