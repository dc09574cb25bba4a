"""Good files of each kind under config/, for tests that spoil them."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ddlbench.plan.runs import make_plan
from ddlbench.settings.config import CONFIG, ConfigError, read_yaml
from ddlbench.settings.machine import Machine, load_machine
from ddlbench.settings.study import load_study
from ddlbench.settings.workflow import check_config

from tests.builders.machines import CLUSTER, MACHINE
from tests.builders.plans import RECIPE, STUDY

WHERE = """\
study: mine
machine: mine
account: null
"""


def bad_input(section: str, inputs: int = 1) -> list[tuple[Any, ...]]:
    """Rows of a section of `bad_input.txt`, which says how they are written: so many cells, and the
    facts as one.
    """
    text = Path(__file__).with_name("bad_input.txt").read_text(encoding="utf-8")
    (rows,) = re.findall(rf"^## {section}: .*\n((?:[^#]|#(?!#))*)", text, re.MULTILINE)
    lines = [line for line in rows.splitlines() if line and not line.startswith("#")]
    cells = [
        [cell.encode().decode("unicode_escape") for cell in line.split(" | ")] for line in lines
    ]
    return [(*row[:inputs], tuple(row[inputs:])) for row in cells]


class Files:
    """A copy of config/ with a good file of each kind, named mine, to spoil."""

    def __init__(self, folder: Path) -> None:
        shutil.copytree(CONFIG, folder)
        self.folder = folder
        self.path = {
            "study": folder / "studies/mine.yaml",
            "machine": folder / "machines/mine.yaml",
            "cluster": folder / "machines/cluster.yaml",
            "recipe": folder / "recipes/mine.yaml",
            "config": folder / "config.yaml",
        }
        for kind, text in zip(self.path, (STUDY, MACHINE, CLUSTER, RECIPE, WHERE), strict=True):
            self.path[kind].write_text(text, encoding="utf-8")

    def spoil(self, kind: str, right: str, wrong: str) -> None:
        """Replace the first `right` in a file."""
        text = self.path[kind].read_text(encoding="utf-8")
        assert right in text
        self.path[kind].write_text(text.replace(right, wrong, 1), encoding="utf-8")

    def machine(self, name: str = "mine") -> Machine:
        """A machine of this copy."""
        return load_machine(name, self.folder / "machines")

    def load(self) -> None:
        """All that a workflow reads before it starts."""
        settings = check_config(read_yaml(self.path["config"]), str(self.path["config"]))
        study = load_study(settings["study"], self.folder / "studies")
        self.machine("cluster")
        make_plan(study, self.machine(settings["machine"]))

    def complaint(self, load: Callable[[], object] | None = None) -> str:
        """The one line that loading says."""
        with pytest.raises(ConfigError) as error:
            (load or self.load)()
        text = str(error.value)
        assert text.strip()
        assert "\n" not in text
        return text
