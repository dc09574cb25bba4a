"""`ddlbench keep`: a study's state under a name: tables, figures and page copied, records by
link.
"""

import os
import shutil
from pathlib import Path

from ddlbench.commands.call import Call
from ddlbench.core import layout
from ddlbench.settings.config import NAME, NAME_IN_WORDS, ConfigError

PLACE = 11
HELP = "freeze a study under a name: its page, tables and figures, and its records by link"
ARGUMENTS = {"name": {"help": "such as 2026-10"}}


def run(call: Call) -> int:
    """Answer, and return the exit code."""
    from ddlbench.show import overview

    planned, name = call.settings.plan, call.options.name
    page, at = Path(layout.page(planned.home)), Path(layout.kept(name), planned.home)
    if not NAME.fullmatch(name):
        raise ConfigError(f"name: {name!r} is not allowed; allowed: {NAME_IN_WORDS}")
    if at.exists():
        raise ConfigError(f"{at}: exists already; give another name, or remove it first")
    if not page.exists():
        raise ConfigError(f"{page}: is not made yet; make it: {call.snakemake()}")
    runs = [Path(layout.run(run)) for run, job in planned.runs.items() if job.outputs()[0].exists()]
    aside = at.with_name(f".{at.name}")
    shutil.rmtree(aside, ignore_errors=True)
    shutil.copytree(page.parent, aside, ignore=shutil.ignore_patterns("partial", "logs", ".*"))
    for folder in runs:
        to = Path(layout.kept(name), "runs", folder.name)
        to.mkdir(parents=True, exist_ok=True)
        for file in folder.iterdir():
            if file.is_file() and not (to / file.name).exists():
                try:  # another name for the same bytes, which stay when the first is replaced
                    os.link(file, to / file.name)
                except OSError:  # a disk without links
                    shutil.copy2(file, to / file.name)
    aside.rename(at)
    overview.write()
    print(
        f"{at}: {len(runs)} of {len(planned.runs)} runs of {planned.study.name}, its tables,"
        " figures and page"
    )
    print(f"To compare with it: ddlbench compare {name}/{at.name} {at.name}")
    return 0
