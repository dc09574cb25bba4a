"""Dry runs of one project, each in a process forked from one that has imported Snakemake and the
project's package.

A process of its own per dry run takes three times as long, and `test_touches.py` makes dozens. The
Snakefile is read by each anew; that package and Snakefile are those of the project as it was when
the first dry run began, a test's touches of code do not matter: what Snakemake sees of it are its
contents.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

WARM = """
import gc, json, os, sys
from pathlib import Path
sys.path.insert(0, str(Path.cwd() / "workflow"))
import smart_open
import snakemake.cli
from ddlbench.commands import job_rule, next_round, start, terminal
from ddlbench.core import registry
from ddlbench.settings import machine, study
snakemake.cli.get_argument_parser()
study.load_study("demo"), machine.load_machine("local"), registry.models()  # what these cache is no file of the project
gc.freeze()
gc.disable()
for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if not child:
        out = os.open(asked["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, of in enumerate((nothing, out, out)):
            os.dup2(of, number)
        sys.argv = ["snakemake", *asked["arguments"]]
        snakemake.cli.main()
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
# What a job says when it is planned, and how tests name it.
SAID = (
    (r"data of figure (\S+)", "data"),
    (r"figure (\S+)", "figure"),
    (r"train (\S+)", "train"),
    (r"records of \S+ that .*", "records"),
    (r"collect .*", "collect"),
    (r"table of \S+: verdicts .*", "verdicts"),
    (r"audit of .*", "audit"),
    (r"frameworks: .*", "frameworks"),
    (r"data \S+: what .*", "forms"),
    (r"preflight: .*", "preflight"),
    (r"page of .*", "page"),
    (r"report of .*", "report"),
    (r"all of the study .*", "all"),
)


class Warm:
    """A process that forks dry runs in a project's folder."""

    def __init__(self, project: Path) -> None:
        self.output = project.with_name(f"{project.name}.said")
        self.process = subprocess.Popen(
            [sys.executable, "-c", WARM],
            cwd=project,
            env={**os.environ, "PYTHONPATH": ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def planned(self, *arguments: str) -> list[str]:
        """Return the jobs that a dry run plans, as `figure throughput`, `train <run>` or `page`,
        sorted.
        """
        options = ["--profile", "profiles/local", "-np", *arguments]
        assert self.process.stdin is not None and self.process.stdout is not None
        print(
            json.dumps({"arguments": options, "output": str(self.output)}),
            file=self.process.stdin,
            flush=True,
        )
        code = self.process.stdout.readline().strip()
        said = self.output.read_text(errors="replace")
        assert code == "0", said
        return sorted(_name(line) for line in re.findall(r"^Job \d+: (.*)$", said, re.M))

    def end(self) -> None:
        """End the process; it has no dry run left."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def _name(line: str) -> str:
    for pattern, name in SAID:
        if found := re.fullmatch(pattern, line):
            return " ".join([name, *found.groups()])
    return line
