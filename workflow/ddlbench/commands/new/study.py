"""A study to begin with."""

import re
from pathlib import Path

from ddlbench.commands.new import checked, free
from ddlbench.settings.config import NAME, NAME_IN_WORDS, ConfigError
from ddlbench.settings.study import load_study

FIGURES = """\
figures:
  throughput: {plot: throughput, runs: [scaling], title: Throughput}
  efficiency: {plot: efficiency, runs: [scaling], title: Parallel efficiency}
"""


def write(
    name: str,
    config: Path,
    *,
    model: str = "resnet8_half",
    dataset: str = "mnist5k",
    frameworks: str = "ddp",
    workers: str = "1,2",
    program: str | None = None,
) -> Path:
    """Write config/studies/<name>.yaml. With a program of config/programs only workers count. Raises ConfigError."""
    path = free(config / "studies" / f"{name}.yaml", name)
    given = {"model": model, "dataset": dataset, "frameworks": frameworks, "workers": workers}
    lists = {what: ", ".join(filter(None, re.split(r"[\s,]+", text))) for what, text in given.items()}
    for what, text in lists.items():
        if not re.fullmatch(r"[\w.,:\- ]+", text):
            raise ConfigError(f"{what}: {text!r}; allowed: names or numbers, separated by commas")
    if program and not NAME.fullmatch(program):
        raise ConfigError(f"program: {program!r} is no name; allowed: {NAME_IN_WORDS}")
    # One more worker is a larger batch: some 60 steps of 64 pictures a worker, so that the largest batch learns too.
    most = max(int(count) for count in re.findall(r"\d+", lists["workers"])[:100] or ["1"])
    trained = f"""\
programs: [{program}]           # config/programs; its settings are further axes
repeats: 3                  # two give an interval, three a useful one

runs:
  scaling:                  # each combination is one run; more blocks may follow
    workers: [{lists["workers"]}]
    batch_per_worker: [8]   # or global_batch, which stays as workers grow

{FIGURES}\
  speed-up: {{plot: speed-up, runs: [scaling], title: Speed-up}}
"""
    if not program:
        trained = f"""\
dataset: {lists["dataset"]}            # mnist5k: 5000 digits that need no download; docs/data.md has others
recipe: first               # config/recipes: everything that decides accuracy
models: [{lists["model"]}]
schedules: [cosine]
epochs: {min(max(3, most), 64)}                   # as many as workers: the more there are, the fewer steps has an epoch
repeats: 2                  # two give an interval, three a useful one

runs:
  scaling:                  # each combination is one run; more blocks may follow
    frameworks: [{lists["frameworks"]}]
    loaders: [native]
    workers: [{lists["workers"]}]
    batch_per_worker: [64]

{FIGURES}\
  step-times: {{plot: step-times, runs: [scaling], title: Where a step's time goes}}
  accuracy: {{plot: accuracy-epochs, runs: [scaling], title: Accuracy over epochs}}
"""
    text = f"""\
# A study is what is compared with what; config/README.md explains every key.
title: "{name}: how does {program or lists["model"]} scale?"
{trained}"""
    return checked(path, text, lambda: load_study(name, path.parent))
