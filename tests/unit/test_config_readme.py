"""config/README.md says what the schemas say, keys come from one place, and its example is a study that works."""

from __future__ import annotations

import re
import shutil
from dataclasses import MISSING, dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from ddlbench.core import recipe, registry
from ddlbench.core.recipe import Recipe, key
from ddlbench.plan.runs import make_plan
from ddlbench.settings.config import CONFIG, ConfigError, check, schema
from ddlbench.settings.document import page
from ddlbench.settings.keys import schema_of, value_of
from ddlbench.settings.machine import SCHEMA as MACHINE_KEYS
from ddlbench.settings.machine import Machine, Partition, load_machine
from ddlbench.settings.recipe import RECIPE_SCHEMA
from ddlbench.settings.study import load_study

README = CONFIG / "README.md"


def test_readme_is_what_the_schemas_make() -> None:
    assert README.read_text(encoding="utf-8") == page() + "\n", (
        "run: python -m ddlbench.settings.document > config/README.md"
    )


@pytest.mark.parametrize(
    "rules",
    [schema("config"), schema("study"), MACHINE_KEYS, RECIPE_SCHEMA],
    ids=["config", "study", "machine", "recipe"],
)
def test_every_key_has_its_row(rules: dict[str, Any]) -> None:
    for name in rules["properties"]:
        assert f"\n| `{name}` |" in page()


def test_what_is_said_to_be_below_is_below() -> None:
    text = page()
    promises = re.findall(r"^\| `(\w+)` \| ([^|]*\bbelow\b[^|]*) \|", text, re.M)
    known = {"data", "checkpoint", "variants", "audit", "control", "records", "measure", "interrupt", "partitions"}
    known |= {"preflight", "by_batch", "inference"}
    assert {name for name, _ in promises} == known
    for name, meaning in promises:
        after = text.split(meaning, 1)[1]
        assert re.search(rf"^Keys of [a-z ]*`{name}`", after, re.M), f"no keys of {name} below"
    for framework in registry.members("frameworks"):
        table = text.split(f"Options of `{framework}`:\n\n| key |", 1)[1].split("\n\n")[0]
        for option in registry.options(framework):
            assert f"\n| `{option}` |" in table


@dataclass(frozen=True, kw_only=True)
class Queue:
    name: str
    width: int = field(default=2, metadata=key("How many fit side by side.", minimum=1))
    speeds: tuple[tuple[str, float], ...] = field(default=(), metadata=key("By model."))
    until: float | None = field(default=None, metadata=key("When it ends [h]."))
    words: tuple[str, ...] = field(metadata=key("What it says.", items={"minLength": 1}))
    parts: tuple[Partition, ...] = field(default=(), metadata=key("What it is made of."))


def test_a_field_is_a_key() -> None:
    """The one place that a key of a machine or recipe is declared in gives its rules, its default and its value."""
    rules = schema_of(Queue)
    assert rules["required"] == ["words"]
    assert list(rules["properties"]) == ["width", "speeds", "until", "words", "parts"]
    assert rules["properties"]["width"] == {
        "description": "How many fit side by side.",
        "type": "integer",
        "minimum": 1,
        "default": 2,
    }
    assert rules["properties"]["until"]["type"] == ["number", "null"]
    data = {"words": ["a"], "speeds": {"b": 2, "a": 1.5}, "parts": [{"name": "p", "max_nodes": 1, "max_minutes": 2}]}
    assert value_of(Queue, check(data, rules, "queue.yaml"), name="q") == Queue(
        name="q",
        words=("a",),
        speeds=(("a", 1.5), ("b", 2)),
        parts=(Partition(name="p", max_nodes=1, max_minutes=2),),
    )
    for wrong, says in (
        ({"words": [""]}, r"words\.0"),
        ({"words": [], "width": 0}, "width: 0 .* at least 1"),
        ({"words": [], "parts": [{"name": "-"}]}, r"parts\.0\.max_nodes: is missing"),
    ):
        with pytest.raises(ConfigError, match=rf"^queue.yaml: {says}"):
            check(wrong, rules, "queue.yaml")


@pytest.mark.parametrize("cls", [Machine, Recipe])
def test_no_field_is_left_without_its_meaning(cls: type) -> None:
    """It would be no key, and files that set it would be refused."""
    assert set(get_type_hints(cls)) - set(schema_of(cls)["properties"]) == {"name"}


def test_a_recipe_key_that_came_later_has_a_default() -> None:
    """Records of before it are read without it, and their runs stay as they are."""
    assert {f.name for f in fields(Recipe) if f.default is MISSING} <= recipe._FIRST


@pytest.mark.parametrize("type_", [dict[str, int], list[str], int | str])
def test_a_type_that_no_key_has_is_named_with_those_that_are_allowed(type_: Any) -> None:
    part = make_dataclass("Part", [("widths", type_, field(default=None, metadata=key("How wide.")))])
    with pytest.raises(TypeError, match=r"^Part\.widths: .*: no type of a key; allowed: str, int, .* for a mapping"):
        schema_of(part)


def test_the_example_is_a_study_of_18_runs(tmp_path: Path) -> None:
    shutil.copytree(CONFIG, tmp_path / "config")
    example = re.search(r"```yaml\n(.*?)```", page(), re.DOTALL)
    assert example is not None
    (tmp_path / "config/studies/mine.yaml").write_text(example[1], encoding="utf-8")
    plan = make_plan(load_study("mine", tmp_path / "config/studies"), load_machine("local"))
    assert {block: len(runs) for block, runs in plan.blocks.items()} == {"scaling": 12, "large-batch": 6}
