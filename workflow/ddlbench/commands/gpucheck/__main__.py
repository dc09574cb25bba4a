"""`make gpu-check`, or `python -m ddlbench.commands.gpucheck`: runs every part, prints a table, says PASS or FAIL.

What a part starts has a time limit, so that none can stop the others or leave anything behind. All is in one folder of
this check's own, `results/gpu-check/<device>-<time>`: the runs, their logs, and `gpu-check.json` with every row.
"""

import argparse
import platform
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ddlbench import __version__
from ddlbench.commands.gpucheck import FAIL, PARTS, PASS, VERDICTS, Outcome
from ddlbench.commands.gpucheck._bench import Bench
from ddlbench.commands.gpucheck.throughput import ENOUGH
from ddlbench.core import registry
from ddlbench.core.files import write_json

RESULT = "gpu-check.json"
CPU_LIMIT_S = 900  # of a part; machines without a GPU are slow ones
NO_GPU = "made on a CPU, with small models: this tries the check itself, and no number of it says anything about a GPU"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ddlbench.commands.gpucheck", description=__doc__)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu tries the check itself")
    parser.add_argument("--folder", type=Path, help="of this check; must be new or empty")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART", help=", ".join(PARTS))
    a = parser.parse_args()
    folder = a.folder or Path("results/gpu-check", f"{a.device}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
    bench = Bench(a.device, folder.absolute(), tiny=a.device == "cpu")
    if problem := cannot_start(bench):
        sys.exit(f"gpu-check: {problem}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("gpu-check: ended by SIGTERM"))  # then no run stays behind
    sys.exit(run(bench, a.parts) == FAIL)


def cannot_start(bench: Bench) -> str | None:
    """Why the check would say nothing here."""
    if not registry.importable("torch"):
        return "torch is not installed: make install GPU=1"
    import torch

    if bench.device == "cuda" and not torch.cuda.is_available():
        return f"no GPU: torch {torch.__version__} sees none (nvidia-smi?); DEVICE=cpu tries the check itself"
    if bench.folder.exists() and any(bench.folder.iterdir()):
        return f"{bench.folder} is not empty; give --folder another one"
    return None


def run(bench: Bench, parts: Sequence[str] = PARTS) -> str:
    """All rows of these parts, printed and written as they come; the verdict."""
    bench.folder.mkdir(parents=True, exist_ok=True)
    most = f"at most {sum(limit_s(bench, part) for part in parts) / 60:.0f} minutes"
    about = NO_GPU if bench.tiny else "2 GB of disk, no data, no network; nothing is installed"
    print(f"gpu-check on {bench.device}, in {bench.folder}: {most}, {about}", flush=True)
    rows: list[tuple[str, Outcome]] = []
    began = time.monotonic()
    for part in parts:
        print(f"\n{part}", flush=True)
        for row in rows_of(bench, part):
            print(line(row), flush=True)
            rows.append((part, row))
            write_json(bench.folder / RESULT, report(bench, rows, time.monotonic() - began, finished=False))
    result = report(bench, rows, time.monotonic() - began)
    write_json(bench.folder / RESULT, result)
    counts = ", ".join(f"{number} {verdict}" for verdict, number in result["counts"].items())
    print(f"\n{result['verdict']}: {counts}; {result['took_s']:.0f} s; all of it: {bench.folder / RESULT}")
    for part, row in rows:
        if row.verdict not in (PASS, FAIL):
            print(f"  not judged: {part}, {row.what}: {row.compared}")
    return str(result["verdict"])


def limit_s(bench: Bench, part: str) -> int:
    """How long a part may take."""
    return CPU_LIMIT_S if bench.tiny else int(registry.member("gpucheck", part).LIMIT_S)


def rows_of(bench: Bench, part: str) -> Iterator[Outcome]:
    """The part's rows; the last one says so if it failed."""
    why = "gave no row"
    try:
        for row in registry.member("gpucheck", part).check(bench.until(limit_s(bench, part))):
            why = ""
            yield row
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
    if why:
        yield Outcome("the part itself", FAIL, why)


def report(bench: Bench, rows: Sequence[tuple[str, Outcome]], took_s: float, finished: bool = True) -> dict[str, Any]:
    """What `gpu-check.json` holds. The verdict is PASS if all parts ran and no row failed."""
    counts = {verdict: sum(row.verdict == verdict for _, row in rows) for verdict in VERDICTS}
    verdict = PASS if counts[FAIL] == 0 and counts[PASS] > 0 else FAIL
    return {
        "verdict": verdict if finished else "not finished",
        "counts": counts,
        "device": bench.device,
        "note": NO_GPU if bench.device == "cpu" else None,
        "host": platform.node(),
        "ddlbench": __version__,
        "took_s": took_s,
        "enough_of_published": ENOUGH,
        "rows": [{"part": part, **asdict(row)} for part, row in rows],
    }


def line(row: Outcome) -> str:
    """A row of the table."""
    value = "" if row.value is None else f"{row.value:.4g} {row.unit}".strip()
    return f"  {row.verdict:8}  {row.what:44}  {value:>18}  {row.compared}".rstrip()


if __name__ == "__main__":
    main()
