"""`ddlbench plan`, `status`, `failures`, ...: questions about a study. What makes files is Snakemake's.

A command is a row of COMMANDS and a function of `answers.py`. Exit codes: 0; 1 where the answer is bad (audit, verify)
or something that people wrote is; 2 for a command line that argparse refuses.
"""

import argparse
import errno
import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from ddlbench.commands import answers
from ddlbench.core import gone, registry
from ddlbench.settings.config import ConfigError, one_of

ABOUT = """\
Questions about a study. What makes files is Snakemake's: each answer ends with the line that does the work."""
# Name -> (function, one line of help).
STUDY: dict[str, tuple[Callable[[answers.Call], int], str]] = {
    "plan": (answers.plan, "hours, energy, price and disk before anything starts; what is stale, and why"),
    "answer": (answers.answer, "what to take, how surely, and what would settle the rest; at any time"),
    "status": (answers.status, "while it runs: done, running, waiting, failed, expected end"),
    "failures": (answers.failures, "what went wrong so far: which run, which rank, why"),
    "audit": (answers.audit, "what makes comparisons unfair, from the study's tables; exit code 1 on errors"),
    "verdicts": (answers.verdicts, "what sources claim, and what the study's runs say to it"),
    "partial": (answers.partial, "page, figures and tables of the runs that are there, in a folder of their own"),
    "verify": (answers.verify, "read all prepared data again; on a cluster in a job: srun -c 8 ddlbench verify ..."),
    "nodes": (answers.nodes, "the slow host, from all records of the machine"),
    "read": (answers.read, "read programs' output again, after a mend; no training"),
    "keep": (answers.keep, "freeze a study under a name: its page, tables and figures, and its records by link"),
    "export": (answers.export, "to TensorBoard, MLflow, RO-Crate, or an application"),
    "compare": (answers.compare, "the same runs on two machines, in two folders, or kept"),
}
COMMANDS = (*STUDY, "new")
JSON = ("plan", "answer", "status", "failures", "audit", "verdicts", "nodes", "compare")
ALL = ("plan", "answer", "status", "failures", "audit", "verdicts")
PATIENCE_S = 1.5  # before a command says that it computes


def parser() -> argparse.ArgumentParser:
    about = argparse.ArgumentParser(add_help=False)
    about.add_argument("--profile", help="of Snakemake: profiles/juwels", default=os.environ.get("SNAKEMAKE_PROFILE"))
    about.add_argument("--study", help="a name of config/studies; left out, as config/config.yaml or the profile says")
    about.add_argument("--machine", help="a name of config/machines, likewise")
    about.add_argument("--config", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help="as for snakemake")
    ddlbench = argparse.ArgumentParser(prog="ddlbench", description=ABOUT)
    commands = ddlbench.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (answer, line) in STUDY.items():
        command = commands.add_parser(name, help=line, description=line, parents=[about])
        command.set_defaults(answer=answer)
        if name in JSON:
            command.add_argument("--json", action="store_true", help="the same for programs")
        if name in ALL:
            command.add_argument("--all", action="store_true", help="what a terminal leaves out; a pipe gets all")
        if name == "keep":
            command.add_argument("name", help="such as 2026-10")
        if name == "export":
            command.add_argument("--to", required=True, choices=registry.members("exports"))
        if name == "compare":
            command.add_argument("before", help="the old side: a machine with records in results, or a folder of runs")
            command.add_argument("after", help="the new side, likewise")
        if name == "audit":
            command.add_argument("tables", type=Path, nargs="?", help="any folder of tables; its audit.csv is written")
            command.add_argument("--out", type=Path, help="another file for the findings")
        if name == "verify":
            command.add_argument("folders", type=Path, nargs="*", help="of prepared forms; left out, all of the study")
            command.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)), help="that read")
    new = commands.add_parser("new", help="a file to begin with: of a machine, a study, a program").add_subparsers(
        dest="kind", required=True
    )
    machine = new.add_parser("machine", help="on a login node: what SLURM says, and what is left to set")
    study = new.add_parser("study", help="a commented study, of a model or of a program")
    for parent, folder in ((machine, "machines"), (study, "studies")):
        parent.add_argument("name", help=f"config/{folder}/<name>.yaml")
    study.add_argument("--model", help="such as resnet50, or your <module>:<function>; left out, resnet8_half")
    study.add_argument("--dataset", help="such as imagenet, or a file of config/datasets; left out, mnist5k")
    study.add_argument("--frameworks", help="such as ddp,horovod; left out, ddp")
    study.add_argument("--workers", help="such as 1,2,4; left out, 1,2")
    study.add_argument("--program", help="a file of config/programs, in place of model and frameworks")
    program = new.add_parser("program", help="from a training program's --help and source; --try shows what is read")
    program.add_argument("program", nargs="?", help="such as train.py; with --try its name, or the newest file's")
    program.add_argument("--name", help="config/programs/<name>.yaml; left out, as the program is called")
    program.add_argument("--environment", help="the folder of its own Python environment, if it has one")
    program.add_argument("--try", dest="trial", action="store_true", help="run it and say what is read")
    program.add_argument("--seconds", type=float, default=60.0, help="of --try, at most")
    program.add_argument("--batch", type=int, default=8, help="samples per step of --try, on each worker")
    program.add_argument("--workers", type=int, default=1, help="of --try: two show whether ranks train together")
    machine.set_defaults(answer=answers.new_machine)
    program.set_defaults(answer=answers.new_program)
    study.set_defaults(answer=answers.new_study)
    return ddlbench


def main(arguments: Sequence[str] | None = None) -> None:
    """Answer, and end with the exit code. What people have to mend is one line."""
    (name, *_) = asked = [*(sys.argv[1:] if arguments is None else arguments), ""]
    if name in gone.COMMANDS:
        parser().exit(2, f"{name}: {gone.COMMANDS[name]}\n")
    if name and not name.startswith("-") and name not in COMMANDS:
        parser().error(f"{name}: is no command; {one_of(COMMANDS, name)}")
    options = parser().parse_args(asked[:-1])
    waiting = threading.Timer(PATIENCE_S, print, [f"ddlbench {options.command}: computing ..."], {"file": sys.stderr})
    waiting.daemon = True
    if sys.stderr.isatty():
        waiting.start()
    try:
        code = options.answer(answers.Call(options))
        sys.stdout.flush()
        sys.exit(code)
    except BrokenPipeError:  # whoever reads has seen enough, such as `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except ConfigError as error:
        sys.exit(str(error))
    except OSError as error:
        todo = "; make room, and ask again" if error.errno == errno.ENOSPC else ""
        sys.exit(f"{error.filename}: {error.strerror}{todo}" if error.filename else str(error))
    finally:
        waiting.cancel()


def of_this_clone() -> None:
    """Go on with the package of the clone that one stands in, as Snakemake does, where that is another one. Several
    clones may share an environment, whose `ddlbench` is installed from one of them."""
    here = Path("workflow").resolve()
    if (here / "ddlbench" / "__init__.py").exists() and here != registry.PACKAGE.parent.resolve():
        path = os.pathsep.join(filter(None, [str(here), os.environ.get("PYTHONPATH")]))
        answer = "from ddlbench.commands.main import main; main()"
        os.execve(sys.executable, [sys.executable, "-c", answer, *sys.argv[1:]], os.environ | {"PYTHONPATH": path})


def script() -> None:
    """The program `ddlbench`, as it is installed."""
    of_this_clone()
    main()


if __name__ == "__main__":
    main()
