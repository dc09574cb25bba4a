"""config/README.md says what the keys say, keys come from one place, and its example is a study
that works.
"""

import re
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import pytest
from ddlbench.core import registry
from ddlbench.core.recipe import Recipe
from ddlbench.core.spec import OMITTED
from ddlbench.plan.runs import make_plan
from ddlbench.settings.config import CONFIG, ConfigError
from ddlbench.settings.document import page
from ddlbench.settings.keys import Keys, Positive, class_of, key, mapping, schema_of, value_of
from ddlbench.settings.machine import Machine, Partition, load_machine
from ddlbench.settings.recipe import RecipeFile
from ddlbench.settings.study_keys import FileKeys
from ddlbench.settings.workflow import Config

from tests.builders.plans import write_study
from tests.facts import refuses

README = CONFIG / "README.md"


def test_readme_is_what_the_keys_make() -> None:
    assert README.read_text(encoding="utf-8") == page() + "\n", (
        "run: python -m ddlbench.settings.document > config/README.md"
    )


@pytest.mark.parametrize("cls", [Config, FileKeys, Machine, RecipeFile])
def test_every_key_has_its_row(cls: type) -> None:
    for name in schema_of(cls)["properties"]:
        assert f"\n| `{name}` |" in page()


def test_what_is_said_to_be_below_is_below() -> None:
    text = page()
    promises = re.findall(r"^\| `(\w+)` \| ([^|]*\bbelow\b[^|]*) \|", text, re.M)
    known = {"data", "checkpoint", "variants", "records", "measure", "interrupt", "partitions"}
    known |= {"by_batch", "inference", "repeats"}
    assert {name for name, _ in promises} == known
    for name, meaning in promises:
        after = text.split(meaning, 1)[1]
        assert re.search(rf"^Keys of [a-z ]*`{name}`", after, re.M), f"no keys of {name} below"
    for framework in registry.members("frameworks"):
        table = text.split(f"Options of `{framework}`:\n\n| key |", 1)[1].split("\n\n")[0]
        for option in registry.options(framework):
            assert f"\n| `{option}` |" in table


@dataclass(frozen=True, kw_only=True)
class Queue(Keys):
    name: str
    width: int = key("How many fit side by side.", 2, minimum=1)
    speeds: Annotated[tuple[tuple[str, float], ...], mapping(Positive)] = key("By model.", ())
    until: float | None = key("When it ends [h].", None)
    words: tuple[str, ...] = key("What it says.")
    parts: tuple[Partition, ...] = key("What it is made of.", ())


def test_a_field_is_a_key() -> None:
    """The one place that a key is declared in gives its rules, its default and its value."""
    rules = schema_of(Queue)["properties"]
    assert list(rules) == ["width", "speeds", "until", "words", "parts"]
    assert rules["width"] == {
        "description": "How many fit side by side.",
        "type": "integer",
        "minimum": 1,
        "default": 2,
    }
    assert rules["until"]["anyOf"] == [{"type": "number"}, {"type": "null"}]
    data = {
        "words": ["a"],
        "speeds": {"b": 2, "a": 1.5},
        "parts": [{"name": "p", "max_nodes": 1, "max_minutes": 2}],
    }
    assert value_of(Queue, data, "queue.yaml", name="q") == Queue(
        name="q",
        words=("a",),
        speeds=(("a", 1.5), ("b", 2)),
        parts=(Partition(name="p", max_nodes=1, max_minutes=2),),
    )
    for wrong, says in (
        ({"words": [7]}, r"words\.0: 7 .* text"),
        ({"words": [], "width": 0}, "width: 0 .* at least 1"),
        ({"words": [], "name": "q"}, "name: unknown key"),  # a field that is no key
        ({"words": [], "speeds": {"a": 0}}, r"speeds\.a: 0 .* more than 0"),
        (
            {"words": [], "parts": [{"name": "p"}]},
            r"parts\.0\.max_nodes: is missing; the most nodes",
        ),
    ):
        with pytest.raises(ConfigError, match=rf"^queue.yaml: {says}"):
            value_of(Queue, wrong, "queue.yaml", name="q")


def test_a_number_stays_as_it_is_written() -> None:
    """The text of a run decides whether it is stale: a recipe's 5 must not become 5.0."""
    value = value_of(Queue, {"words": [], "until": 5, "speeds": {"a": 2}}, "queue.yaml", name="q")
    assert repr((value.until, value.speeds)) == "(5, (('a', 2),))"


def test_options_are_keys() -> None:
    """A framework says its options as JSON schemas; values may be names and numbers."""
    more: Any = class_of({"colour": {"description": "Its colour.", "enum": ["red", 7]}})
    assert value_of(more, {"colour": 7}, "mine.yaml", "runs.one").colour == 7
    with refuses(ConfigError, 'mine.yaml: runs.one.colour: "rad" ', "red?", "7, red"):
        value_of(more, {"colour": "rad"}, "mine.yaml", "runs.one")


@pytest.mark.parametrize("cls", [Machine, Recipe])
def test_no_field_is_left_without_its_meaning(cls: type) -> None:
    """It would be no key, and files that set it would be refused."""
    assert set(get_type_hints(cls)) - set(schema_of(cls)["properties"]) - {
        "__pydantic_config__"
    } == {"name"}


@pytest.mark.parametrize("cls", OMITTED)
def test_what_a_runs_text_leaves_out_has_a_default(cls: Any) -> None:
    assert set(OMITTED[cls]) <= {f.name for f in fields(cls) if f.default is not MISSING}


def test_the_example_is_a_study_of_18_runs(tmp_path: Path) -> None:
    example = re.search(r"```yaml\n(.*?)```", page(), re.DOTALL)
    assert example is not None
    plan = make_plan(write_study(tmp_path, example[1]), load_machine("local"))
    assert {block: len(runs) for block, runs in plan.blocks.items()} == {
        "scaling": 12,
        "large-batch": 6,
    }
