"""What a call is about: the configuration, and the study, the machine and the plan that it names.

The Snakefile and the commands read it alike, so that `ddlbench plan` with the options of a
`snakemake` counts what that one would do: config/config.yaml, over it the files that a profile
names, over these what the command line says.
"""

import gc
import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ddlbench.analysis.price import tariff
from ddlbench.core import registry
from ddlbench.data import target
from ddlbench.plan import reads
from ddlbench.plan.values import Plan
from ddlbench.settings.config import ConfigError, read_yaml, typed
from ddlbench.settings.machine import Machine
from ddlbench.settings.study import Study
from ddlbench.settings.workflow import check_config, merge

DEFAULT = Path("config/config.yaml")
KEY = re.compile(r"[a-zA-Z_][\w-]*\w")


class Settings(NamedTuple):
    """The settings of `config/`, read and checked: `images` are those of an epoch, by data set.

    The plan has study and machine.
    """

    config: dict[str, Any]
    images: Mapping[str, int]
    plan: Plan


def read(config: Mapping[str, Any], only: Collection[str] | None = None) -> Settings:
    """Read the study and the machine that the configuration names, with all runs, or `only` these
    (ids). Raises ConfigError.
    """
    # A mapping of numbers: on the command line Snakemake reads its values as text.
    numbers = {"checkpoint": typed(config["checkpoint"])} if "checkpoint" in config else {}
    checked = check_config({**config, **numbers})
    plan, images = reads.plan_of(checked, only=only)
    sources = checked["data"]["sources"]
    target.check_places(
        {run.manifest: sources.get(run.spec.dataset) for run in plan.runs.values() if run.manifest}
    )
    # A plan of thousands of jobs is millions of objects that all stay; do not look for garbage
    # among them all the time.
    gc.freeze()
    gc.set_threshold(200_000, 50, 1000)
    return Settings(checked, images, plan)


def of_command_line(profile: str | None, entries: Sequence[str]) -> dict[str, Any]:
    """Return the configuration as Snakemake makes it of `--profile` and `--config key=value ...`.

    Raises ConfigError.
    """
    if not DEFAULT.exists():
        raise ConfigError(f"{DEFAULT}: is not here; run this in the project's folder")

    def as_list(value: Any) -> list[str]:
        return (
            []
            if value is None
            else [str(item) for item in (value if isinstance(value, list) else [value])]
        )

    options = _profile(profile) if profile not in (None, "none") else {}
    config = load(DEFAULT)
    for path in as_list(options.get("configfile")):
        config = merge(config, load(Path(path)))
    # As in Snakemake, --config on the command line takes the place of all of the profile's.
    profile_config = options.get("config")
    others = (
        [f"{key}={value}" for key, value in profile_config.items()]
        if isinstance(profile_config, dict)
        else as_list(profile_config)
    )
    for entry in entries or others:
        key, equals, value = entry.partition("=")
        if not equals or not KEY.fullmatch(key):
            raise ConfigError(
                f"--config: {entry!r} is not a setting; allowed: key=value, with a key of"
                " config/README.md"
            )
        config = merge(config, {key: _value(value.strip("'\""))})
    return config


def load(path: Path) -> dict[str, Any]:
    """Load a file of configuration as Snakemake reads it, in YAML 1.1.

    Raises ConfigError, of one line, also about what would hang Snakemake or end it in a traceback:
    in YAML 1.1 for example 2024-13-45 is a date that does not exist.
    """
    read_yaml(path)
    try:
        return dict(yaml.safe_load(path.read_text(encoding="utf-8")) or {})
    except (ValueError, TypeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: Snakemake cannot read it: {error}") from None


def terms(
    machine: Machine, checkpoint: Mapping[str, Any]
) -> tuple[float | None, float | None, str | None, float | None, int | None]:
    """Return the fields of `analysis.sheets.Terms`; `checkpoint` is the configuration's key.

    The price of a node is for the complete node.
    """
    sold = tariff(machine)
    price = sold.price(1.0, sold.workers_blocked(1, 1))
    often = machine.node_hours_between_interruptions
    return often, price, machine.currency, checkpoint["minutes"], checkpoint["epochs"]


def others_records(study: Study) -> list[str]:
    """Return the records of others that the study shows. Raises ConfigError if there are none."""
    if study.records is None:
        return []
    places = registry.member("records", study.records.kind).find(
        Path(study.records.folder), study.records.benchmarks
    )
    if not places:
        source = f" of {', '.join(study.records.benchmarks)}" if study.records.benchmarks else ""
        raise ConfigError(
            f"{study.path}: records.folder: {study.records.folder!r} has no {study.records.kind}"
            f" records{source}"
        )
    return [str(path) for path in places]


def _profile(name: str) -> dict[str, Any]:
    """Return the options of a Snakemake profile: a folder, or the name of one in the user's folder
    of profiles.
    """
    user = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "snakemake"
    # One for a release of Snakemake goes before one for all, as in Snakemake.
    files = [
        file for folder in (Path(name), user / name) for file in sorted(folder.glob("config*.yaml"))
    ]
    if not files:
        ours = ", ".join(
            str(file.parent) for file in sorted(Path("profiles").glob("*/config.yaml"))
        )
        raise ConfigError(
            f"--profile: {name!r} is not a folder with a config.yaml; allowed: {ours}, or one of"
            " yours"
        )
    path = files[0]
    try:
        text = path.read_text(encoding="utf-8")
        if "__use_yte__" in text:
            import yte  # half a second

            options = yte.process_yaml(text, require_use_yte=True)
        else:
            options = yaml.safe_load(text)
    except Exception as error:  # YTE executes what stands in the profile
        raise ConfigError(f"{path}: cannot be read: {type(error).__name__}: {error}") from None
    return dict(options or {})


def _value(text: str) -> Any:
    """Parse a setting's text as Snakemake does."""
    if text == "":
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    if text in ("True", "False"):
        return text == "True"
    try:
        return yaml.load(text, Loader=yaml.BaseLoader)
    except yaml.YAMLError:
        return text
