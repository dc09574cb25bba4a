"""Whoever deletes the file of a member loses what it makes, and nothing else: what everything rests
on does without.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from ddlbench.analysis import claim_verdicts
from ddlbench.audit import finding_rows
from ddlbench.core import registry
from ddlbench.core.columns import write_csv
from ddlbench.plan.estimate import GUESSED, PREDICTED

from tests.builders.records import SPEC, write_record
from tests.conftest import ROOT, Once

pytestmark = pytest.mark.slow

ROOMS = ("sheets", "prediction", "sections", "records", "questions")
# What the page reads of every study, and what `collect` says of records: nothing is made without
# them.
NEEDED = {
    "ours",
    "runs",
    "epochs",
    "step-times",
    "losses",
    "comparisons",
    "kernels",
    "failures",
    "refused",
}
MEMBERS = [
    registry.path(room, name)
    for room in ROOMS
    for name in registry.members(room)
    if name not in NEEDED
]
# Modules that are asked by sections of the page, and by commands, alone.
MEMBERS += [registry.PACKAGE / f"analysis/{name}.py" for name in ("claim_verdicts", "slow_nodes")]
WITHOUT = ["nothing", *(str(path.relative_to(registry.PACKAGE)) for path in MEMBERS)]
PREDICTOR = "analysis/prediction/last_rate.py"
# Tables by the file without which they are not made; that of jobs is made by another rule.
TABLES = {file: Path(file).stem for file in WITHOUT if file.startswith("analysis/sheets/")}
TABLES.pop("analysis/sheets/inference.py")


def naming(file: str, package: Path) -> list[Path]:
    """The sections of the page that import the module in a file: who deletes it deletes them."""
    room, _, name = ".".join(["ddlbench", *Path(file).with_suffix("").parts]).rpartition(".")
    lines = (f"from {room}.{name} import ", f"from {room} import {name}\n")
    sections = sorted((package / "show/page/sections").glob("*.py"))
    return [
        path for path in sections if any(line in path.read_text(encoding="utf-8") for line in lines)
    ]


def try_all(folder: Path) -> None:
    """Write `made.json`: what a copy of the package makes of the record of a run, without each of
    these files.
    """
    package = folder / "workflow/ddlbench"
    shutil.copytree(registry.PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "config").symlink_to(ROOT / "config")
    write_record(folder / "runs", SPEC)
    write_csv([], finding_rows.COLUMNS, folder / "beside/audit.csv")
    pd.DataFrame(columns=claim_verdicts.COLUMNS).to_csv(folder / "beside/verdicts.csv", index=False)
    files = {file: [str(package / file), *map(str, naming(file, package))] for file in WITHOUT[1:]}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("without.py")), str(folder)],
        input=json.dumps({WITHOUT[0]: []} | files),
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(package.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (folder / "made.json").write_text(done.stdout)


@pytest.fixture(scope="module")
def made(once: Once) -> dict[str, Any]:
    answers: dict[str, Any] = json.loads(
        (once("deleted-members", try_all) / "made.json").read_text()
    )
    return answers


@pytest.mark.parametrize("file", WITHOUT)
def test_the_rest_is_made_without_it(file: str, made: dict[str, Any]) -> None:
    answer = made[file]
    assert isinstance(answer, dict), answer
    assert {*TABLES.values()} & {*answer["tables"]} == {*TABLES.values()} - {TABLES.get(file)}
    assert answer["estimate_by"] == (GUESSED if file == PREDICTOR else PREDICTED)
