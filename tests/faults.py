"""What goes wrong on clusters and is made to go wrong here: each fault, what is expected, and the
test that tries it.

The list is `faults.csv`. At the end of a run of the SLURM tier pytest prints the table with what
happened. `python -m tests.faults > docs/faults.md` makes the page that shows it;
`tests/unit/test_fault_table.py` holds page and tests to it.
"""

import csv
from pathlib import Path
from typing import Any, NamedTuple


class Fault(NamedTuple):
    """A fault. `tests`: `tier/function`, in whatever file of that tier it is."""

    what: str
    expected: str
    tests: tuple[str, ...]


with Path(__file__).with_name("faults.csv").open(encoding="utf-8", newline="") as rows:
    FAULTS = tuple(
        Fault(row["fault"], row["expected"], tuple(row["tests"].split()))
        for row in csv.DictReader(rows)
    )

PAGE = """# What was made to go wrong

Made by `python -m tests.faults > docs/faults.md`; do not edit. Each of these faults is made to happen by a test:
`slurm` on a real small cluster, `contract` with real ranks, `workflow` with Snakemake, `unit` with the package alone.
After the SLURM tier (`DDLBENCH_SLOW=1 pytest tests`) pytest prints this table with what happened. What is tried in
`unit` alone was not seen on a cluster.

| fault | expected | tests |
|---|---|---|
"""


def page() -> str:
    """docs/faults.md: one row per fault, with the tiers that try it."""
    tiers = {
        fault: ", ".join(dict.fromkeys(test.split("/")[0] for test in fault.tests))
        for fault in FAULTS
    }
    return PAGE + "".join(
        f"| {fault.what} | {fault.expected} | {tiers[fault]} |\n" for fault in FAULTS
    )


def summary(terminalreporter: Any) -> None:
    """Print, after tests of the SLURM tier: each fault that was tried, what was expected, what
    happened.
    """
    heard: dict[str, list[tuple[str, str]]] = {}
    for outcome in ("passed", "failed", "error"):
        for report in terminalreporter.stats.get(outcome, []):
            if outcome != "passed" or report.when == "call":
                file, _, function = report.nodeid.split("[")[0].partition("::")
                test = f"{file.removeprefix('tests/').split('/')[0]}/{function}"
                crash = getattr(getattr(report.longrepr, "reprcrash", None), "message", "")
                heard.setdefault(test, []).append(
                    (outcome, (crash.splitlines() or [outcome])[0][:100])
                )
    if not any(test.startswith("slurm/") for test in heard):
        return
    tried = [
        (fault, [one for test in fault.tests for one in heard.get(test, [])]) for fault in FAULTS
    ]
    tried = [(fault, happened) for fault, happened in tried if happened]
    terminalreporter.section(f"faults: {len(tried)} of {len(FAULTS)} were tried")
    for fault, happened in tried:
        wrong = [message for outcome, message in happened if outcome != "passed"]
        what = (
            f"NOT SO: {wrong[0]}"
            if wrong
            else "as expected" + (f", {len(happened)} times" * (len(happened) > 1))
        )
        terminalreporter.write_line(f"{fault.what} | {fault.expected} | {what}")


if __name__ == "__main__":
    print(page(), end="")
