"""The keys of `config/config.yaml` and of the command line (`--config`): what to run where."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from pydantic import Field

from ddlbench.core import registry
from ddlbench.settings.config import ConfigError, expand, one_of
from ddlbench.settings.keys import Keys, Name, key, value_of

Text = Annotated[str, Field(min_length=1)]


@dataclass(frozen=True, kw_only=True)
class Data(Keys):
    on_error: str = key(
        "A picture that cannot be used (truncated, empty, not a picture) ends the preparation with"
        " `stop`; with `skip` it is left out and listed in the manifest.",
        "stop",
        enum=["stop", "skip"],
    )
    sources: dict[str, Text] = key(
        "By data set, where it lies: `{imagenet: /data/ILSVRC2012}`. Needed for imagenet only;"
        " others are fetched or made if nothing is said. What each takes is the first text of its"
        " file in workflow/ddlbench/data/datasets.",
        {},
    )


@dataclass(frozen=True, kw_only=True)
class Checkpoint(Keys):
    epochs: int | None = key("Epochs between checkpoints. null: none by epochs.", None, minimum=1)
    minutes: float | None = key(
        "Minutes of training between checkpoints. null: none by time.", 30, exclusiveMinimum=0
    )


@dataclass(frozen=True, kw_only=True)
class Config(Keys):
    study: Name = key("Name of a file in config/studies, without .yaml.")
    machine: Name = key("Name of a file in config/machines, without .yaml.")
    account: Name | None = key(
        "The project that SLURM bills; used on machines with launcher slurm.", None
    )
    max_gpu_hours: float | None = key(
        "Budget of GPU hours: nothing is started if the runs that are to be made would take more"
        " than this, by the likely estimate of `ddlbench plan`; runs that are done do not count. On"
        " CPU machines an hour of a worker counts as one. null: no limit.",
        None,
        exclusiveMinimum=0,
    )
    data: Data = key(
        "Where data sets come from, and what to do with bad pictures; its keys are below.",
        Data(),
    )
    checkpoint: Checkpoint = key(
        "When a run writes a checkpoint, from which it goes on after it was stopped; its keys are"
        " below.",
        Checkpoint(),
    )


def check_config(data: dict[str, Any], file: str = "config/config.yaml") -> dict[str, Any]:
    """Return the settings of config.yaml and the command line, with defaults filled in.

    Raises ConfigError at the first fault.
    """
    # What was given stays as it was written: 30, not 30.0.
    config = merge(asdict(value_of(Config, data, file)), data)
    names, sources = registry.members("datasets"), config["data"]["sources"]
    for name in sources:
        if name not in names:
            raise ConfigError(
                f"{file}: data.sources.{name}: unknown data set; {one_of(names, name)}"
            )
        sources[name] = expand(sources[name], file, f"data.sources.{name}")
    return config


def merge(defaults: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the defaults, replaced by the given values; mappings are merged key by key."""
    result = dict(defaults)
    for name, value in given.items():
        inside = isinstance(value, dict) and isinstance(result.get(name), dict)
        result[name] = merge(result[name], value) if inside else value
    return result
