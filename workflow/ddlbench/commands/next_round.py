"""The next round of repeats, until a study is decided: the same call of Snakemake again."""

import atexit
import inspect
import os
import sys
from pathlib import Path
from typing import Any

from ddlbench.commands.snakefile import STARTED
from ddlbench.core import layout
from ddlbench.plan import rounds
from ddlbench.plan.values import Plan


def continue_with_round(workflow: Any, plan: Plan) -> None:
    """Print the result of the last look at a study that makes repeats until it is decided. If the
    look asks for another round, execute the same command line again in this process, whose plan
    then has the runs of that round.

    A call that forces jobs would force them in each round, and another program's call of Snakemake
    is not ours to repeat: both are told how to go on.
    """
    path = Path(layout.rounds(plan.home))
    if (
        plan.study.until is None
        or workflow.touch
        or not path.exists()
        or path.stat().st_mtime < STARTED
    ):
        return
    looks = rounds.read(path)
    print(*rounds.last_look_lines(looks, plan.study.until), sep="\n", file=sys.stderr)
    if rounds.requested_runs(looks) <= {*plan.runs}:
        return
    given = workflow.dag_settings
    if given.forceall or given.forcetargets or given.forcerun:
        print("to make the next round: call snakemake again, without forcing", file=sys.stderr)
        return
    if not is_command():
        study = f"--config study={plan.study.name} machine={plan.machine.name}"
        profile = "--profile profiles/slurm " if plan.machine.launcher == "slurm" else ""
        print(
            f"to make the next round: run this workflow again, or: snakemake {profile}{study}",
            file=sys.stderr,
        )
        return
    workflow.persistence.unlock()
    # what the end of a process does: the mark that it is at work, temporary folders
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", "snakemake", *sys.argv[1:]])


def is_command() -> bool:
    """Return whether this process is Snakemake's command, under whatever name: a script that does
    nothing but call Snakemake's main function with the words of its command line. A program that
    uses Snakemake's API, or gives words of its own, is not.
    """
    from snakemake.cli import main

    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code is main.__code__:
            caller = frame.f_back
            is_script = caller is not None and caller.f_code.co_name == "<module>"
            is_first = caller is not None and caller.f_globals.get("__name__") == "__main__"
            return is_script and is_first and frame.f_locals.get("argv") is None
        frame = frame.f_back
    return False
