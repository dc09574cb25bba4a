"""config/README.md says what the schemas say, and its example is a study that works."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from ddlbench.plan.runs import make_plan
from ddlbench.settings.config import CONFIG, schema
from ddlbench.settings.document import page
from ddlbench.settings.machine import load_machine
from ddlbench.settings.study import load_study

README = CONFIG / "README.md"


def test_readme_is_what_the_schemas_make() -> None:
    assert README.read_text(encoding="utf-8") == page() + "\n", (
        "run: python -m ddlbench.settings.document > config/README.md"
    )


@pytest.mark.parametrize("kind", ["config", "study", "machine", "recipe"])
def test_every_key_has_its_row(kind: str) -> None:
    for key in schema(kind)["properties"]:
        assert f"\n| `{key}` |" in page()


def test_the_example_is_a_study_of_18_runs(tmp_path: Path) -> None:
    shutil.copytree(CONFIG, tmp_path / "config")
    example = re.search(r"```yaml\n(.*?)```", page(), re.DOTALL)
    assert example is not None
    (tmp_path / "config/studies/mine.yaml").write_text(example[1], encoding="utf-8")
    plan = make_plan(load_study("mine", tmp_path / "config/studies"), load_machine("local"))
    assert {block: len(runs) for block, runs in plan.blocks.items()} == {"scaling": 12, "large-batch": 6}
