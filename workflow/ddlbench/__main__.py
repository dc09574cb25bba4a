"""`python -m ddlbench new machine NAME` and `python -m ddlbench new study NAME`: a file to begin with (`new/`).

`python -m ddlbench seal results/runs` seals the records of version 0.1.0 (`records/_sealing.py`).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ddlbench.commands.new import machine as new_machine
from ddlbench.commands.new import study as new_study
from ddlbench.settings.config import ConfigError


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ddlbench", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    sealing = commands.add_parser("seal", help="check the records of version 0.1.0, and seal them")
    sealing.add_argument("folders", nargs="+", type=Path, help="results/runs, or folders of runs")
    kinds = commands.add_parser("new", help="a file to begin with").add_subparsers(dest="kind", required=True)
    machine = kinds.add_parser("machine", help="on a login node: what SLURM says, and what is left to set")
    study = kinds.add_parser("study", help="a commented study; what is not given is asked")
    for one, folder in ((machine, "machines"), (study, "studies")):
        one.add_argument("name", help=f"config/{folder}/<name>.yaml")
    study.add_argument("--model", help="such as resnet50")
    study.add_argument("--frameworks", help="such as ddp,horovod")
    study.add_argument("--workers", help="such as 1,2,4")
    given = parser.parse_args()
    if given.command == "seal":
        from ddlbench.records import _sealing  # pandas

        _sealing.main(given.folders)
        return
    try:
        if given.kind == "machine":
            path = new_machine.write(given.name, Path("config"))
        else:
            answers = {
                what: getattr(given, what) or (input(f"{asked}: ") if sys.stdin.isatty() else default)
                for what, (asked, default) in new_study.QUESTIONS.items()
            }
            path = new_study.write(given.name, Path("config"), **answers)
    except ConfigError as error:
        sys.exit(str(error))
    print(f"{path}: read it through; lines with SET are yours" if given.kind == "machine" else f"{path}: it is yours")


if __name__ == "__main__":
    main()
