"""One call of a command: what it was told, the study that it is about, and how its answer is
shown.
"""

import argparse
import json
import shlex
import sys
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from ddlbench.core import layout
from ddlbench.core.formatting import count_of

MOST = 8  # lines of an answer on a terminal


class Call:
    """The call of a command. `settings`, the study with its plan, is read on first use."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        named = [
            f"{key}={value}"
            for key in ("study", "machine")
            if (value := getattr(options, key, None))
        ]
        self.entries = [*named, *getattr(options, "config", [])]
        self.json: bool = getattr(options, "json", False)
        # Whoever reads a pipe or a file wants all of it.
        self.all: bool = getattr(options, "all", False) or not sys.stdout.isatty()

    @cached_property
    def settings(self) -> Any:
        """Read the `configuration.Settings`. Raises ConfigError."""
        from ddlbench.commands import configuration

        return configuration.read(configuration.of_command_line(self.options.profile, self.entries))

    def snakemake(self, *targets: str) -> str:
        """Return the command line that does the work this call is about."""
        queue = self.settings.plan.machine.partitions
        profile = self.options.profile or f"profiles/{'slurm' if queue else 'local'}"
        entries = ["--config", *self.entries] if self.entries else []
        return shlex.join(["snakemake", "--profile", profile, *targets, *entries])

    def unfinished(self) -> bool:
        """Tell whether a job has no result, or the page is missing, older than a result, or of
        another text of the study's files. Where Snakemake remembers nothing of the page, file times
        decide.
        """
        from ddlbench.commands import snakefile
        from ddlbench.plan import stale

        planned = self.settings.plan
        page = layout.page(planned.home)
        metadata = stale.read_metadata(page)
        try:
            made_s = Path(page).stat().st_mtime
            read: list[Path | str] = [job.outputs()[0] for job in planned.jobs.values()]
            if metadata is None:
                read += snakefile.written(planned)
            elif repr(snakefile.said(planned)) not in (metadata.get("params") or ()):
                return True
            return any(Path(path).stat().st_mtime > made_s for path in read)
        except FileNotFoundError:
            return True

    def show(
        self,
        lines: Iterable[str],
        data: object,
        *targets: str,
        answer: Sequence[str] = (),
        stale: bool = False,
    ) -> None:
        """Print the answer, the other lines, and the command that does the work if any is left;
        with --json only `data`.

        Where there is an answer, a terminal shows the other lines with --all only.
        """
        if self.json:
            print(json.dumps(data, indent=1, default=str))
            return
        rest = (
            [*lines] if self.all or not answer else ["For all lines: the same command with --all"]
        )
        work = [f"To run it: {self.snakemake(*targets)}"] if stale or self.unfinished() else []
        print(*answer, *rest, *work, sep="\n", flush=True)


def older(planned: Any, table: Path) -> list[str]:
    """Return a line about records that changed since a table was made, or none: the table may be
    out of date.
    """
    if not table.exists():
        return []
    made_s = table.stat().st_mtime
    files_of = [
        Path(file) for run in planned.runs for file in (layout.run_log(run), layout.run_steps(run))
    ]
    newer = sorted(
        {path.parent.name for path in files_of if path.exists() and path.stat().st_mtime > made_s}
    )
    if not newer:
        return []
    more = f" and {count_of(len(newer) - 1, 'more record')}" if len(newer) > 1 else ""
    return [
        f"WARNING: {table} is older than the record of {newer[0]}{more}: make it again with"
        " snakemake tables"
    ]


def page_line(home: Path) -> list[str]:
    """Return the line with the page's location, if the page is made."""
    page = home / "index.html"
    return [f"page: {page}"] if page.exists() else []
