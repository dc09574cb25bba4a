"""Every command of docs/tutorial.md, in its order, in a clone; the install is the one that runs the
tests.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ddlbench.audit import finding_rows
from ddlbench.core.files import read_csv

INSTALLS = ("make install", "source .venv/bin/activate")


@pytest.mark.slow
def test_every_command_of_the_tutorial_works(project: Path) -> None:
    page = (project / "docs/tutorial.md").read_text()
    commands = [
        line for block in re.findall(r"```sh\n(.*?)```", page, re.S) for line in block.splitlines()
    ]
    assert all(install in commands for install in INSTALLS)
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment["PYTHONPATH"] = str(project / "workflow")
    if not (
        Path(sys.executable).parent / "ddlbench"
    ).exists():  # an environment into which nobody installed a clone
        (project / "ddlbench").write_text(
            f'#!/bin/sh\nexec "{sys.executable}" -m ddlbench.commands.main "$@"\n'
        )
        (project / "ddlbench").chmod(0o755)
        environment["PATH"] += f":{project}"
    said = {}
    for number, command in enumerate(command for command in commands if command not in INSTALLS):
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=project,
            env=environment,
            capture_output=True,
            text=True,
            timeout=900,
        )
        said[number] = done.stdout + done.stderr
        assert done.returncode == 0, f"{command}\n{said[number]}"
    text = (project / "results/mine/local/index.html").read_text()
    assert "6 of 6" in text
    # What `new` wrote learns, on one worker and on two; the audit has nothing to say against it.
    rows = read_csv(project / "results/mine/local/tables/runs.csv")
    learnt = {(row["workers"], row["repeat"]): float(row["final_top1"]) for row in rows}
    assert len(learnt) == 6 and min(learnt.values()) > 0.8, learnt
    assert "diverged" not in {
        row["rule"] for row in finding_rows.read(project / "results/mine/local/tables/audit.csv")
    }
    assert "6 of 6" in (project / "results/own/local/index.html").read_text()  # step 7
    trial = next(text for text in said.values() if "batch_per_worker 8" in text)
    assert re.search(r"^\d+ steps, .*\bloss \d", trial, re.M), trial
    # Step 1: six runs. Step 5: six of deepspeed, none of ddp. Step 6: twelve of another model on
    # other pictures.
    dry = [text for text in said.values() if ", dry run: " in text]
    for text, runs in zip(dry, (6, 6, 12), strict=True):
        assert re.search(rf"^  train +{runs} +of", text, re.M), text
