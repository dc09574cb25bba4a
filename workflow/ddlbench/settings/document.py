"""config/README.md from the keys: `python -m ddlbench.settings.document > config/README.md`.

What a key means, allows and defaults to is said once: in the dataclasses of `study_keys.py`,
`machine.py`, `workflow.py` and `core/recipe.py`, and in each framework's OPTIONS; `README.md.jinja`
is the text around them. A test holds the page to them.
"""

import json
from pathlib import Path
from typing import Any

import jinja2

from ddlbench.core import registry
from ddlbench.settings.dataset import DatasetFile
from ddlbench.settings.keys import class_of, in_words, schema_of
from ddlbench.settings.machine import Machine
from ddlbench.settings.program import ProgramFile
from ddlbench.settings.recipe import RecipeFile
from ddlbench.settings.study import BATCH, REQUIRED
from ddlbench.settings.study_keys import BlockKeys, TopLevelKeys
from ddlbench.settings.workflow import Config


def page() -> str:
    """Return the text of config/README.md: `README.md.jinja` with a table for each kind of file and
    each key with keys.
    """
    either = {
        key: f"required: this or `{other}`" for key, other in zip(BATCH, BATCH[::-1], strict=True)
    }
    files = {
        "config": Config,
        "machine": Machine,
        "recipe": RecipeFile,
        "program": ProgramFile,
        "dataset": DatasetFile,
    }
    files |= {"study": TopLevelKeys, "block": BlockKeys}
    schemas = {name: schema_of(keys) for name, keys in files.items()}
    schemas["block"] = {**schemas["block"], "required": REQUIRED}
    text = Path(__file__).with_name("README.md.jinja").read_text(encoding="utf-8")
    template = jinja2.Template(text, trim_blocks=True, undefined=jinja2.StrictUndefined)
    makers = {"table": _table, "inside": _inside, "inner": _inner, "options": _options}
    return str(
        template.render(
            **schemas, **makers, either=either, frameworks=registry.members("frameworks")
        )
    )


def _inside(schema: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the rules of a key whose values are mappings with keys of their own, or are lists or
    mappings of such mappings.
    """
    rules: dict[str, Any] = schema["properties"][name]
    places = [rules, rules.get("items"), rules.get("additionalProperties"), *rules.get("anyOf", ())]
    return next(place for place in places if isinstance(place, dict) and "properties" in place)


def _inner(schema: dict[str, Any], name: str, each: str = "") -> str:
    return f"Keys of {each}`{name}`:\n\n{_table(_inside(schema, name))}"


def _options(framework: str) -> str:
    """Format a framework's options: a heading and a table."""
    options = registry.options(framework)
    if not options:
        return f"`{framework}` has no options.\n\n"
    return f"Options of `{framework}`:\n\n{_table(schema_of(class_of(options)))}"


def _table(schema: dict[str, Any], defaults: dict[str, str] | None = None) -> str:
    """Format one row per key. `defaults` are texts for keys that have no default in the schema."""
    lines = ["| key | meaning | allowed | default |", "|---|---|---|---|"]
    for key, rules in schema["properties"].items():
        if key in schema.get("required", ()):
            default = "required"
        elif rules.get("type") == "object" and rules.get("default", {}) is not None:
            default = "`{}`"  # the defaults of nested keys are in their own table
        elif rules["default"] is None and "null" not in str(rules.get("anyOf")):
            default = (defaults or {}).get(key, "left out")
        else:
            default = f"`{json.dumps(rules['default'])}`"
        lines.append(f"| `{key}` | {rules['description']} | {in_words(rules)} | {default} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page())
