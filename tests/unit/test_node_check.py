"""The site's own check of a node: real commands that succeed, fail, are not there and hang, and
what becomes of it.
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from ddlbench.core import gone, notes
from ddlbench.plan.runs import make_plan
from ddlbench.plan.values import Plan
from ddlbench.preflight import node_check, promise, scout
from ddlbench.preflight.judge import judge
from ddlbench.settings.study import load_study

from tests.builders.machines import JUWELS, LAPTOP
from tests.conftest import until
from tests.facts import missing

SAYS = "for n in 1 2 3 4; do echo line $n; done; echo; exit"


@pytest.mark.parametrize(
    ("command", "facts"),
    [
        ("true", None),
        ("bash -c 'echo all is well'", None),
        (f"bash -c '{SAYS} 3'", ("exit code 3", "line 2 | line 3 | line 4")),
        ("false", ("exit code 1",)),
        ("bash -c 'echo on stderr >&2; exit 1'", ("exit code 1", "on stderr")),
        ("bash -c 'kill -TERM $$'", ("signal 15",)),
        ("no-such-check -r 1", ("started", "No such file")),
        ("/", ("started", "Permission denied")),
        (r"printf '\033[31mred\377\n'", None),
    ],
)
def test_how_a_check_ended(command: str, facts: tuple[str, ...] | None, tmp_path: Path) -> None:
    found = node_check.failure(command, 60, tmp_path)
    assert (found is None) == (facts is None) and missing(found, *(facts or ())) == []
    assert list(tmp_path.iterdir()) == []


def test_what_a_check_prints_is_one_line_of_text(tmp_path: Path) -> None:
    noisy = r"""bash -c 'yes noise | head -100000; printf "\033[31mred\377\n"; exit 1'"""
    found = node_check.failure(noisy, 60, tmp_path)
    assert found is not None and len(found.splitlines()) == 1
    assert missing(found, "exit code 1", "noise | noise | \\x1b[31mred\ufffd") == []


def ended(pid: int) -> bool:
    """Is there no such process, or only what nobody has waited for?"""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_check_that_does_not_end_is_ended(tmp_path: Path) -> None:
    """With what it started; what it said before is in the error."""
    child = tmp_path / "child"
    began = time.monotonic()
    found = node_check.failure(
        f"bash -c 'echo waiting; sleep 300 & echo $! > {child}; wait'", 2, tmp_path
    )
    assert missing(found, "2 s", "node_check_timeout_s", "waiting") == []
    assert time.monotonic() - began < 60
    # It was killed with its parent, but nobody waits for it here: it may take a moment to end.
    until(lambda: ended(int(child.read_text())), 10)


def test_a_process_that_is_left_behind_does_not_hold_the_check(tmp_path: Path) -> None:
    """It keeps the output open, in a session of its own."""
    began = time.monotonic()
    assert node_check.failure("bash -c 'setsid sleep 20 & exit 0'", 60, tmp_path) is None
    assert time.monotonic() - began < 15


def scouted(folder: Path, **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What one rank left, and what was promised."""
    plan = make_plan(load_study("frameworks"), replace(LAPTOP, **more))
    of = promise.expected_settings(plan) | {
        "workers": 1,
        "data": str(folder),
        "manifests": [],
        "models": [],
    }
    (folder / scout.PROMISED).write_text(json.dumps(of))
    alone = {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
    }
    argv = [sys.executable, "-m", "ddlbench.preflight.scout", str(folder)]
    subprocess.run(argv, env=os.environ | alone, check=True, timeout=200)
    (facts,) = notes.read(folder, "rank").values()
    return facts, of


def test_a_node_that_fails_its_check_keeps_training_from_starting(tmp_path: Path) -> None:
    """The rank goes on and meets the others, so that all that is wrong is said at once."""
    facts, of = scouted(tmp_path, node_check="bash -c 'echo 2 GPUs are lost; exit 7'")
    found = "ended with exit code 7: 2 GPUs are lost"
    assert (facts["node_check"], facts["doing"], facts["all_reduce"]["gloo"]["sum"]) == (
        found,
        None,
        1,
    )
    (problem,) = [problem for problem in judge([facts], of) if "node_check" in problem.text]
    assert problem.error
    for part in (
        "config/machines/local.yaml: node_check",
        "exit 7",
        found,
        f"(on {facts['host']})",
    ):
        assert part in problem.text


@pytest.mark.more
def test_a_node_that_passes_is_no_problem(tmp_path: Path) -> None:
    facts, of = scouted(tmp_path, node_check="true")
    assert facts["node_check"] is None
    assert [problem for problem in judge([facts], of) if "node_check" in problem.text] == []


def test_each_node_is_checked_by_its_first_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 1 of a node does not check it a second time; it says no less than the first one."""
    monkeypatch.setattr(scout, "meet", lambda *_: None)
    asked: list[str] = []
    monkeypatch.setattr(node_check, "failure", lambda command, *_: asked.append(command))
    monkeypatch.setattr(sys, "argv", ["scout", str(tmp_path)])
    monkeypatch.setattr(scout.faulthandler, "dump_traceback_later", lambda *_, **__: None)
    plan = make_plan(load_study("demo"), replace(LAPTOP, node_check="true"))
    of = promise.expected_settings(plan) | {"workers": 2, "models": []}
    (tmp_path / scout.PROMISED).write_text(json.dumps(of))
    for rank in ("0", "1"):
        for name, value in {"RANK": rank, "WORLD_SIZE": "2", "LOCAL_RANK": rank}.items():
            monkeypatch.setenv(name, value)
        scout.main()
    assert asked == ["true"]
    assert [facts["node_check"] for facts in notes.read(tmp_path, "rank").values()] == [None, None]


def test_who_asked_for_a_screening_learns_what_took_its_place() -> None:
    assert "node_check" in str(gone.key_sentence("preflight"))


def test_a_check_is_promised_and_has_time_in_the_queue(paper: Plan) -> None:
    assert not {"node_check", "node_check_timeout_s"} & set(promise.expected_settings(paper))
    checked = replace(JUWELS, node_check="dcgmi diag -r 2", node_check_timeout_s=300)
    of = make_plan(paper.study, checked)
    assert promise.expected_settings(of)["node_check"] == "dcgmi diag -r 2"
    assert promise.expected_settings(of)["node_check_timeout_s"] == 300
    assert promise.preflight_ranks(of) == promise.preflight_ranks(paper)
    minutes = [promise.resources(plan, None)["runtime"] for plan in (paper, of)]
    assert minutes == [10, 15]
    assert set(of.runs) == set(paper.runs)
