"""What each rank executes where nothing needs to be trained: leaves a whole record, in a tenth of a
second.

By that record DeepSpeed is a tenth slower than the others, and repeats differ by some thousandths.
One run in ten, chosen by its id, fails the first time. `made` beside the record counts the good
endings.
"""

import hashlib
import json
import re
import sys
import time
from pathlib import Path

from ddlbench.core.rank_log import RankLog
from ddlbench.core.spec import RunSpec
from ddlbench.core.step_rows import packed
from ddlbench.train import place

ROOT = Path(__file__).resolve().parents[2]
IMAGES = 4000  # at most: an epoch is of whole batches
BEFORE_MS = 3_600_000  # how long ago it says that it began: what it says took place is over


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
    rank = place.own_rank(spec.workers).rank
    tried = folder.parent / "tried"
    if fails_first(spec.id) and not tried.exists():
        tried.touch()
        sys.exit(3)
    sys.path.append(str(ROOT))
    from tests.builders.logs import log_epochs, step_rows

    slower = (
        1
        + 0.1 * ("deepspeed" in spec.framework)
        + hashlib.sha256(spec.id.encode()).digest()[1] / 1e5
    )
    images = IMAGES // spec.global_batch * spec.global_batch
    log = RankLog(folder, rank)
    log.write_settings(spec, told["facts"], images, 4)
    log.at_ms = log_epochs(log, spec, images, slower, began_ms=round(1e3 * time.time()) - BEFORE_MS)
    (folder / f"rank-{rank}.json").write_text(json.dumps({"host": "", "pid": 0}))
    log.stop("run_stop", status="success")
    log.write_steps(packed(step_rows(spec, images, rank, slower)))
    with (folder.parent / "made").open("a") as made:
        made.write(f"{rank}\n")


if __name__ == "__main__":
    main()
