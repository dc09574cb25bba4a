"""Check a study and a machine and print the runs as CSV: `python -m ddlbench.plan aach2023 juwels-booster`."""

from __future__ import annotations

import argparse
import csv
import os
import sys

from ddlbench.plan.runs import make_plan
from ddlbench.settings.config import ConfigError
from ddlbench.settings.machine import load_machine
from ddlbench.settings.study import load_study


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study")
    parser.add_argument("machine")
    arguments = parser.parse_args()
    try:
        plan = make_plan(load_study(arguments.study), load_machine(arguments.machine))
    except ConfigError as error:
        sys.exit(str(error))
    if plan.left_out:
        print(f"left out, more workers than {arguments.machine} has: {plan.left_out}", file=sys.stderr)
    table = csv.writer(sys.stdout)
    table.writerow(("run", "asks", "command"))
    for run, planned in plan.runs.items():
        table.writerow((run, planned.resources.get("asks"), planned.resources["launch"]))
    for job, asked in plan.inferences.items():
        table.writerow((job, asked.resources.get("asks"), asked.resources["launch"]))


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:  # whoever reads has seen enough, such as `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
