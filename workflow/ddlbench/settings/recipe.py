"""A recipe: one YAML file that says how to train; its keys are fields of `ddlbench.core.recipe.Recipe`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ddlbench.core.recipe import Recipe
from ddlbench.settings.config import CONFIG, check, complain
from ddlbench.settings.keys import schema_of, value_of
from ddlbench.settings.reading import read_yaml


def _schema() -> dict[str, Any]:
    """A recipe's keys, and `by_batch`, whose rows may give some of them."""
    schema = schema_of(Recipe)
    rules = schema["properties"]
    row = {"global_batch": {"description": "The batch size of this row [images].", "type": "integer", "minimum": 1}}
    for name in ("base_lr", "momentum", "weight_decay", "warmup_epochs", "decay_epochs"):
        row[name] = {k: v for k, v in rules[name].items() if k != "default"} | {"type": "number"}
    rules["by_batch"] = {
        "description": "Rows of values by global batch size, ascending, interpolated linearly between them; base_lr "
        "then is the peak rate at that batch. Batch sizes outside the rows are refused. The keys of a row are below.",
        "type": "array",
        "default": [],
        "items": {
            "type": "object",
            "additionalProperties": False,
            "required": ["global_batch", "base_lr"],
            "properties": row,
        },
    }
    return schema


RECIPE_SCHEMA = _schema()


@dataclass(frozen=True)
class RecipeFile:
    """A recipe as its file says, with the values that it gives for some batch sizes, ascending."""

    path: Path
    recipe: Recipe
    by_batch: tuple[dict[str, float], ...]

    def at(self, global_batch: int) -> Recipe:
        """The recipe at a batch size: values of `by_batch` are interpolated linearly, and its rate is the peak's.

        Raises ConfigError for a batch size outside the table.
        """
        rows = self.by_batch
        if not rows:
            return self.recipe
        smallest, largest = rows[0]["global_batch"], rows[-1]["global_batch"]
        if not smallest <= global_batch <= largest:
            raise complain(self.path, "by_batch", global_batch, f"allowed: batch sizes from {smallest} to {largest}")
        after = next(i for i, row in enumerate(rows) if row["global_batch"] >= global_batch)
        low, high = rows[max(after - 1, 0)], rows[after]
        span = high["global_batch"] - low["global_batch"]
        share = (global_batch - low["global_batch"]) / span if span else 0.0
        # In this form a row's own batch size gives exactly its values.
        values = {key: (1 - share) * low[key] + share * high[key] for key in low if key != "global_batch"}
        return replace(self.recipe, base_batch=global_batch, **values)  # type: ignore[arg-type]


def load_recipe(name: str, folder: Path = CONFIG / "recipes") -> RecipeFile:
    """The recipe of that name. Raises ConfigError."""
    path = folder / f"{name}.yaml"
    data = check(read_yaml(path), RECIPE_SCHEMA, path)
    rows = data.pop("by_batch")
    for number, row in enumerate(rows):
        if row.keys() != rows[0].keys():
            keys = f"allowed: the keys of the first row: {', '.join(rows[0])}"
            raise complain(path, f"by_batch.{number}", list(row), keys)
    if [row["global_batch"] for row in rows] != sorted({row["global_batch"] for row in rows}):
        raise complain(path, "by_batch", [row["global_batch"] for row in rows], "allowed: ascending batch sizes")
    return RecipeFile(path, value_of(Recipe, data, name=name), tuple(rows))
