"""What everything rests on, asked of a copy of the package without some of its files: `python
without.py <copy>`.

From stdin come names, each with the files to leave out; to stdout goes what was made without them,
or what went wrong. Each is tried in a process of its own, which has the large packages that all
need from the first: so it takes a second.
"""

import json
import os
import shutil
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
import matplotlib.pyplot
import pandas
import psutil
import pyarrow.parquet
import scipy.special

# Imported before the first process is forked.
SHARED = (jinja2, matplotlib.pyplot, pandas, psutil, pyarrow.parquet, scipy.special)


def make(record: Path, folder: Path) -> dict[str, Any]:
    """Tables of one record, a page of them and an estimate, by the package as it is now.

    Files beside them that other rules make are in the folder `beside` of the record's.
    """
    from ddlbench.analysis import frameworks
    from ddlbench.analysis.collect import collect
    from ddlbench.analysis.sheets import Costs, Terms
    from ddlbench.core.mllog import read_log
    from ddlbench.core.record import MLLOG
    from ddlbench.core.spec import RunSpec
    from ddlbench.plan.estimate import Estimator, RecordedTime, read_published
    from ddlbench.settings.machine import load_machine
    from ddlbench.show.page import about, partial, write

    tables = folder / "tables"
    refused = collect([record], tables, costs=Costs(terms=Terms(node_hours_between=100.0)))
    assert refused == [], refused
    frameworks.write(tables / "frameworks.csv")
    for file in (record.parents[1] / "beside").iterdir():
        shutil.copy(file, tables)
    page = about.PageStudy("test", "Test", "local", "cpu", "CPU core", "snakemake page", (), (), {})
    write.write(page, folder / "index.html", folder)
    assert callable(partial.make)  # imports all that a study in part needs

    (said,) = (event.value for event in read_log(record / MLLOG) if event.key == "ddlbench_spec")
    spec = RunSpec.from_json(json.dumps(said))
    machine = replace(load_machine("local"), name=spec.machine, workers_per_node=8)
    estimator = Estimator(
        machine, [RecordedTime(said, 1000, 10.0, 1.0, 5.0, None, None)], read_published()
    )
    took = estimator.estimate(replace(spec, workers=4, global_batch=2 * spec.global_batch), 1000)
    assert "torch" not in sys.modules
    return {"tables": sorted({path.stem for path in tables.iterdir()}), "estimate_by": took.by}


def made_without(files: list[Path], record: Path, folder: Path) -> Any:
    """What a process of its own makes while these files are not there: a dictionary, or the text of
    its error.
    """
    for file in files:
        file.rename(file.with_suffix(".gone"))
    try:
        reads, writes = os.pipe()
        if os.fork() == 0:
            try:
                answer: Any = make(record, folder)
            except BaseException:
                answer = traceback.format_exc()
            os.write(writes, json.dumps(answer).encode())
            os._exit(0)
        os.close(writes)
        with os.fdopen(reads) as answers:
            return json.loads(answers.read() or '"the process died"')
    finally:
        os.wait()
        for file in files:
            file.with_suffix(".gone").rename(file)


def main() -> None:
    copy = Path(sys.argv[1])
    (record,) = (copy / "runs").iterdir()
    cases = {name: [Path(file) for file in files] for name, files in json.load(sys.stdin).items()}
    answers = {
        name: made_without(files, record, copy / str(number))
        for number, (name, files) in enumerate(cases.items())
    }
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
