"""A recipe: one YAML file that says how to train; its keys are fields of
`ddlbench.core.recipe.Recipe`.
"""

from dataclasses import dataclass, field, fields, make_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import Field

from ddlbench.core.recipe import Recipe
from ddlbench.settings.config import CONFIG, complain, read_yaml
from ddlbench.settings.keys import Count, Keys, key, value_of

# A row of `by_batch`: keys of a recipe that may differ by batch size, a number each.
_MAY_DIFFER = ("base_lr", "momentum", "weight_decay", "warmup_epochs", "decay_epochs")
Row = make_dataclass(
    "Row",
    [
        ("global_batch", Count, key("The batch size of this row [images].")),
        *(
            (
                f.name,
                float,
                (
                    field(metadata=f.metadata)
                    if f.name == "base_lr"
                    else key(**f.metadata, default=None)
                ),
            )
            for f in fields(Recipe)
            if f.name in _MAY_DIFFER
        ),
    ],
    bases=(Keys,),
    frozen=True,
    kw_only=True,
)


_STEP_EPOCHS = next(f for f in fields(Recipe) if f.name == "step_epochs")


@dataclass(frozen=True, kw_only=True)
class RecipeFile(Recipe, Keys):
    """A recipe from its file, with the file's values for some batch sizes, ascending."""

    # `Recipe` cannot say what each item of a list must be: ranks import it where pydantic is not installed.
    step_epochs: tuple[Annotated[float, Field(ge=0)], ...] = key(
        **_STEP_EPOCHS.metadata, default=_STEP_EPOCHS.default
    )
    by_batch: tuple[Row, ...] = key(  # type: ignore[valid-type]
        "Rows of values by global batch size, ascending, interpolated linearly between them;"
        " base_lr then is the peak rate at that batch. Batch sizes outside the rows are refused."
        " The keys of a row are below.",
        (),
    )
    path: Path = Path()

    @cached_property
    def recipe(self) -> Recipe:
        """Return the recipe as its keys define it, whatever the batch size."""
        return Recipe(**{f.name: getattr(self, f.name) for f in fields(Recipe)})

    def at(self, global_batch: int) -> Recipe:
        """Return the recipe at a batch size: values of `by_batch` are interpolated linearly, and
        `base_lr` is the peak learning rate. Raises ConfigError for a batch size outside the table.
        """
        if not self.by_batch:
            return self.recipe
        rows = [
            {key: value for key, value in vars(row).items() if value is not None}
            for row in self.by_batch
        ]
        smallest, largest = rows[0]["global_batch"], rows[-1]["global_batch"]
        if not smallest <= global_batch <= largest:
            raise complain(
                self.path,
                "by_batch",
                global_batch,
                f"allowed: batch sizes from {smallest} to {largest}",
            )
        after = next(i for i, row in enumerate(rows) if row["global_batch"] >= global_batch)
        low, high = rows[max(after - 1, 0)], rows[after]
        span = high["global_batch"] - low["global_batch"]
        share = (global_batch - low["global_batch"]) / span if span else 0.0
        # In this form a row's own batch size gives exactly its values.
        values = {
            key: (1 - share) * low[key] + share * high[key] for key in low if key != "global_batch"
        }
        return replace(self.recipe, base_batch=global_batch, **values)


def load_recipe(name: str, folder: Path = CONFIG / "recipes") -> RecipeFile:
    """Load the recipe of that name. Raises ConfigError."""
    path = folder / f"{name}.yaml"
    data = read_yaml(path)
    recipe = value_of(RecipeFile, data, path, name=name)
    rows = data.get("by_batch", [])
    for number, row in enumerate(rows):
        if row.keys() != rows[0].keys():
            keys = f"allowed: the keys of the first row: {', '.join(rows[0])}"
            raise complain(path, f"by_batch.{number}", list(row), keys)
    if [row["global_batch"] for row in rows] != sorted({row["global_batch"] for row in rows}):
        raise complain(
            path,
            "by_batch",
            [row["global_batch"] for row in rows],
            "allowed: ascending batch sizes",
        )
    return replace(recipe, path=path)
