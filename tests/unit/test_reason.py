"""What Snakemake says of a failed run: the reason first, and no command of 1500 letters."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from ddlbench.run.reason import ReasonFirst
from snakemake.logging import DefaultFormatter
from snakemake_interface_logger_plugins.common import LogEvent

SPEC = "x" * 1500


def said(folder: Path, rule: str = "train", message: str | None = None) -> str | None:
    """How Snakemake prints the error of a rule's job in this folder; None if it is dropped."""
    about: dict[str, Any] = {"rule_name": rule, "rule_msg": message, "jobid": 3, "input": [], "indent": False}
    about |= {"output": [f"{folder}/run.mllog"], "log": [f"{folder}/train.log"], "conda_env": None, "aux": {}}
    about |= {"shellcmd": f"python -m ddlbench.run --spec '{SPEC}'", "event": LogEvent.JOB_ERROR}
    return printed("Error in rule", **about)


def printed(text: str, **about: Any) -> str | None:
    record = logging.makeLogRecord({"msg": text, "levelno": logging.ERROR, **about})
    return DefaultFormatter(quiet=None).format(record) if ReasonFirst().filter(record) else None


def failed(folder: Path, when: float | str) -> Path:
    (folder / "failed").mkdir(parents=True)
    report = {"cause": "loss is not finite", "message": "Traceback\nrank 0: loss is not finite", "time": when}
    (folder / "failed/failure.json").write_text(json.dumps(report))
    return folder


def test_the_reason_comes_first_and_a_file_stands_for_the_command(tmp_path: Path) -> None:
    folder = failed(tmp_path / "mini-r1", 4e9)
    text = said(folder, message="SLURM-job '7' failed, SLURM status is: 'FAILED'.")
    assert text is not None
    lines = text.splitlines()[1:]  # the time goes first
    assert lines[:3] == [
        "Error in rule train:",
        "    message: mini-r1: rank 0: loss is not finite",
        "    SLURM-job '7' failed, SLURM status is: 'FAILED'.",
    ]
    assert f"    command: stands at the head of {folder}/train.log" in lines
    assert SPEC not in text
    alone = said(folder)
    assert alone is not None
    assert "    message: mini-r1: rank 0: loss is not finite\n    jobid" in alone


@pytest.mark.parametrize(("when", "message"), [(1.0, "failed"), (4e9, "It ended before its run began, on node1.")])
def test_the_reason_of_an_earlier_try_is_not_said(tmp_path: Path, when: float, message: str) -> None:
    text = said(failed(tmp_path / "mini-r1", when), message=message)
    assert text is not None
    assert "not finite" not in text and message in text and SPEC not in text


def test_what_left_no_reason_and_other_rules_are_said_as_ever(tmp_path: Path) -> None:
    assert "message: gone" in str(said(tmp_path, message="gone"))
    (tmp_path / "train.log").write_text("Traceback\nImportError: no module a\n")
    assert "    message: ImportError: no module a\n    jobid" in str(said(tmp_path))
    assert SPEC in str(said(tmp_path, rule="prepare"))
    assert printed(f"CalledProcessError\nCommand 'python -m ddlbench.run --spec {SPEC}'") is None
    assert printed("CalledProcessError\nCommand 'python -m ddlbench.prepare'") is not None
    assert printed("MissingInputException") is not None
