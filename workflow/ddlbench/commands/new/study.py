"""A study to begin with; `study.yaml.jinja` is its text."""

import re
from pathlib import Path

from ddlbench.commands.new import checked, filled, free
from ddlbench.commands.new.batch import of_program
from ddlbench.settings.config import NAME, NAME_IN_WORDS, ConfigError
from ddlbench.settings.program import load_reading
from ddlbench.settings.study import load_study


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
    """Write config/studies/<name>.yaml. With a program of config/programs only workers count.
    Raises ConfigError.
    """
    path = free(config / "studies" / f"{name}.yaml", name)
    axes = {"model": model, "dataset": dataset, "frameworks": frameworks, "workers": workers}
    lists = {
        axis: ", ".join(filter(None, re.split(r"[\s,]+", text))) for axis, text in axes.items()
    }
    for axis, text in lists.items():
        if not re.fullmatch(r"[\w.,:\- ]+", text):
            raise ConfigError(f"{axis}: {text!r}; allowed: names or numbers, separated by commas")
    if program and not NAME.fullmatch(program):
        raise ConfigError(f"program: {program!r} is not a name; allowed: {NAME_IN_WORDS}")
    # One more worker is a larger batch: some 60 steps of 64 pictures a worker, so that the largest
    # batch learns too.
    most = max(int(count) for count in re.findall(r"\d+", lists["workers"])[:100] or ["1"])
    batch = None
    if program:
        batch = of_program(load_reading(program, config / "programs", draft=True), config.parent)
    text = filled(
        "study", name=name, program=program, epochs=min(max(3, most), 64), batch=batch, **lists
    )
    return checked(path, text, lambda: load_study(name, path.parent))
