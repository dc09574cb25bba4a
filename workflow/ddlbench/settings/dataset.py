"""Data sets that people describe: `config/datasets/<name>.yaml`; `data/datasets/_own.py` opens
them.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ddlbench.core import registry
from ddlbench.settings.config import CONFIG, ConfigError, expand, names_in, read_yaml
from ddlbench.settings.keys import Keys, key, value_of

FOLDER = CONFIG / "datasets"


@dataclass(frozen=True, kw_only=True)
class DatasetFile(Keys):
    """The keys of the file."""

    folder: str = key(
        "Where the pictures lie: class folders in `train` (or `training`) and `val` (`valid`,"
        " `validation`, else `dev` or `test`), or in one of them, or in the folder itself; or"
        " WebDataset shards (`*.tar`), in such folders or with such a word in their names. `~` and"
        " `$NAME` work.",
        minLength=1,
    )
    validation_every: int = key(
        "Used if there are no validation pictures: one in so many training pictures of each class,"
        " in the order of names, is taken for validation.",
        10,
        minimum=2,
    )

    def to_json(self) -> str:
        """Return the keys on one line, as the argument of the prepare job: if it changes, the
        prepared form is stale.
        """
        return json.dumps(vars(self), sort_keys=True)


def folder_of(argument: str) -> str:
    """Return the folder of the pictures from the prepare job's argument: a path, or the JSON of
    `DatasetFile.to_json`.
    """
    return str(json.loads(argument)["folder"]) if argument.startswith("{") else argument


def load_dataset(name: str, folder: Path | None = None) -> DatasetFile:
    """Load the description of that name. Raises ConfigError."""
    path = (folder or FOLDER) / f"{name}.yaml"
    if name in registry.members("datasets"):
        raise ConfigError(f"{path}: ddlbench has a data set of this name; rename the file")
    data = read_yaml(path)
    keys = value_of(DatasetFile, data, path)
    return DatasetFile(
        folder=expand(keys.folder, path, "folder"), validation_every=keys.validation_every
    )


def datasets(folder: Path | None = None) -> Iterable[str]:
    """List the names that a study may use for its data set."""
    return [*registry.members("datasets"), *names_in(folder or FOLDER, ".yaml")]
