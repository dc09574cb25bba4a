"""What each rank executes where nothing needs to be trained: leaves a whole record, in a tenth of a second.

One run in ten, chosen by its id, fails the first time. `made` beside the record counts the good endings.
"""

import hashlib
import json
import re
import sys
from pathlib import Path

from ddlbench.core.record import RankLog, StepRow, packed
from ddlbench.core.spec import RunSpec
from ddlbench.train import place


def stand_in(project: Path) -> None:
    """From now on this is what ranks of a copy of the project execute. It makes no run stale."""
    launch = project / "workflow/ddlbench/plan/launch.py"
    program = f'PROGRAM = ("python", "{Path(__file__).resolve()}")'
    launch.write_text(re.sub(r"(?m)^PROGRAM = .*", program, launch.read_text()))


def fails_first(run: str) -> bool:
    """One in ten."""
    return hashlib.sha256(run.encode()).digest()[0] % 10 == 0


def main() -> None:
    folder = Path(sys.argv[1])
    told = json.loads((folder / "assignment.json").read_text(encoding="utf-8"))
    spec = RunSpec.from_json(json.dumps(told["spec"]))
    rank = place.here(spec.workers).rank
    tried = folder.parent / "tried"
    if fails_first(spec.id) and not tried.exists():
        tried.touch()
        sys.exit(3)
    log = RankLog(folder, rank)
    log.settings(spec, told["facts"], 4000, 1000)
    (folder / f"rank-{rank}.json").write_text(json.dumps({"host": "", "pid": 0}))
    log.stop("run_stop", status="success")
    log.write_steps(packed([StepRow(0, 0, rank, 1, 0.1, 1.0, 0.0, 0.1, 0.1, None, 0.1, 0.3)]))
    with (folder.parent / "made").open("a") as made:
        made.write(f"{rank}\n")


if __name__ == "__main__":
    main()
