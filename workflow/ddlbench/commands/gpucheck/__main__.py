"""`make gpu-check`, or `python -m ddlbench.commands.gpucheck`: runs every part, prints a table, says PASS or FAIL.

A part is a process of its own with a time limit, so that none can stop the others or leave anything behind. Its rows
are written as they come. All is in one folder of this check's own, `results/gpu-check/<device>-<time>`: the runs, what
parts said, and `gpu-check.json` with every row.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ddlbench import __version__
from ddlbench.commands.gpucheck import FAIL, PARTS, VERDICTS, Row
from ddlbench.commands.gpucheck._bench import Bench, last_words
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
    parser.add_argument("--only-rows", action="store_true", help=argparse.SUPPRESS)  # the process of one part
    a = parser.parse_args()
    folder = a.folder or Path("results/gpu-check", f"{a.device}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
    bench = Bench(a.device, folder.absolute())
    if a.only_rows:
        write_rows(bench, a.parts[0])
        return
    if problem := cannot_start(bench):
        sys.exit(f"gpu-check: {problem}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("gpu-check: ended by SIGTERM"))  # then no part stays behind
    bench.folder.mkdir(parents=True, exist_ok=True)
    about = NO_GPU if bench.tiny else "20 minutes, 2 GB of disk, no data, no network; nothing is installed"
    print(f"gpu-check on {a.device}, in {folder}: {about}", flush=True)
    rows: dict[str, list[Row]] = {}
    began = time.monotonic()
    for part in a.parts:
        print(f"\n{part}", flush=True)
        rows[part] = run_part(bench, part)
        for row in rows[part]:
            print(line(row), flush=True)
        write_json(bench.folder / RESULT, report(bench, rows, time.monotonic() - began, len(a.parts)))
    result = report(bench, rows, time.monotonic() - began, len(a.parts))
    counts = ", ".join(f"{number} {verdict}" for verdict, number in result["counts"].items())
    print(f"\n{result['verdict']}: {counts}; {result['took_s']:.0f} s; all of it: {folder / RESULT}")
    if bench.tiny:
        print(NO_GPU)
    sys.exit(result["verdict"] == FAIL)


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


def limit_s(bench: Bench, part: str) -> int:
    """How long a part may take."""
    return CPU_LIMIT_S if bench.tiny else int(registry.member("gpucheck", part).LIMIT_S)


def run_part(bench: Bench, part: str) -> list[Row]:
    """The part's rows; the last one says so if it failed or took too long."""
    limit, log = limit_s(bench, part), bench.folder / f"{part}.log"
    arguments = ["--device", bench.device, "--folder", str(bench.folder), "--parts", part, "--only-rows"]
    with log.open("w", encoding="utf-8") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "ddlbench.commands.gpucheck", *arguments],
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=bench.environment(),
        )
        try:
            code: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            # ddlbench.run ends its ranks when it is ended itself.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    rows = read_rows(rows_file(bench, part))
    if code is None:
        rows.append(Row("the part itself", FAIL, f"took longer than its {limit} s; {log}", limit, "s"))
    elif code:
        words = last_words(log.read_text(encoding="utf-8", errors="replace"))
        rows.append(Row("the part itself", FAIL, f"exit code {code}: {words}; {log}"))
    elif not rows:
        rows.append(Row("the part itself", FAIL, f"gave no row; {log}"))
    return rows


def rows_file(bench: Bench, part: str) -> Path:
    """Where a part leaves its rows, one line of JSON each."""
    return bench.folder / f"{part}.rows"


def write_rows(bench: Bench, part: str) -> None:
    """What the process of one part does."""
    with rows_file(bench, part).open("w", encoding="utf-8") as rows:
        for row in registry.member("gpucheck", part).check(bench):
            rows.write(json.dumps(asdict(row)) + "\n")
            rows.flush()


def read_rows(file: Path) -> list[Row]:
    """The whole lines of a part's rows; a part that was killed may have left half of one."""
    if not file.exists():
        return []
    text = file.read_text(encoding="utf-8")
    return [Row(**json.loads(whole)) for whole in text.split("\n")[:-1]]


def report(bench: Bench, rows: dict[str, list[Row]], took_s: float, parts: int) -> dict[str, Any]:
    """What `gpu-check.json` holds. The verdict is PASS if all parts ran and no row failed."""
    every = [row for of_part in rows.values() for row in of_part]
    counts = {verdict: sum(row.verdict == verdict for row in every) for verdict in VERDICTS}
    good = counts[FAIL] == 0 and counts["PASS"] > 0
    return {
        "verdict": ("PASS" if good else FAIL) if len(rows) == parts else "not finished",
        "counts": counts,
        "device": bench.device,
        "note": NO_GPU if bench.tiny else None,
        "host": platform.node(),
        "ddlbench": __version__,
        "took_s": took_s,
        "enough_of_published": ENOUGH,
        "rows": [{"part": part, **asdict(row)} for part, of_part in rows.items() for row in of_part],
    }


def line(row: Row) -> str:
    """A row of the table."""
    value = "" if row.value is None else f"{row.value:.4g} {row.unit}".strip()
    return f"  {row.verdict:8}  {row.what:44}  {value:>18}  {row.compared}".rstrip()


if __name__ == "__main__":
    main()
