"""What heartbeats leave in a node's memory: nothing of a run that ended, whoever was killed."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ddlbench.core import heartbeats

from tests.unit.test_heartbeats import RANK, soon


def test_a_node_keeps_nothing_of_a_run_that_ended(tmp_path: Path) -> None:
    here = heartbeats.node_folder(tmp_path)
    assert here is not None
    heartbeats.write_heartbeat(here / f"0-{os.getpid()}", 1)
    heartbeats.end(tmp_path, 0)
    assert not here.exists()


def test_heartbeats_of_an_earlier_try_accuse_nobody(tmp_path: Path) -> None:
    """Whoever begins removes its own; the node's first rank those of processes that are gone."""
    here = heartbeats.node_folder(tmp_path)
    assert here is not None
    gone = subprocess.Popen(["true"])
    gone.wait()
    for name in (f"1-{os.getpid()}", f"2-{gone.pid}"):
        heartbeats.write_heartbeat(here / name, 7)
    starts = (
        "from ddlbench.core import heartbeats; from pathlib import Path;"
        f" heartbeats.keep_beating(Path({str(tmp_path)!r}), "
    )
    for rank, left in ((1, {"2"}), (0, set())):
        subprocess.run([sys.executable, "-c", f"{starts}{rank}, {rank}, 1)"], check=True)
        assert {path.name.split("-")[0] for path in here.iterdir()} - {str(rank), "1"} == left - {
            str(rank)
        }
        assert not (here / f"1-{os.getpid()}").exists()
    shutil.rmtree(here)


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node's memory of its own."""
    (tmp_path / "shm").mkdir()
    monkeypatch.setattr(heartbeats, "_bases", lambda: (tmp_path / "shm",))
    return tmp_path / "shm"


def killed_rank(folder: Path, memory: Path) -> Path:
    """What a rank leaves that was killed while it trained: its folder in the node's memory."""
    program = RANK.replace(
        "folder, rank", f"heartbeats._bases = lambda: (Path({str(memory)!r}),)\nfolder, rank", 1
    )
    rank = subprocess.Popen([sys.executable, "-c", program, str(folder), "0"])
    (here,) = heartbeats._places(folder)
    soon(lambda: list(here.glob("0-*")))
    heartbeats.tidy(folder)
    heartbeats.tidy_others()
    assert list(here.glob("0-*"))  # it lives
    rank.kill()
    rank.wait()
    return here


def test_a_killed_rank_leaves_nothing_once_its_supervisor_ends(
    tmp_path: Path, memory: Path
) -> None:
    killed_rank(tmp_path, memory)
    heartbeats.tidy(tmp_path)
    assert list(memory.iterdir()) == []


def test_the_next_run_on_a_node_removes_what_killed_ranks_left(
    tmp_path: Path, memory: Path
) -> None:
    """Of nobody who lives, nor of another, and not before it is sure."""
    (tmp_path / "old").mkdir()
    here = killed_rank(tmp_path / "old", memory)
    living, fresh = (
        heartbeats.node_folder(tmp_path / "living"),
        heartbeats.node_folder(tmp_path / "fresh"),
    )
    assert living is not None and fresh is not None
    heartbeats.write_heartbeat(living / f"0-{os.getpid()}", 1)
    heartbeats.write_heartbeat(
        living / f"1-{10**6 * 8}", 1
    )  # of a process that cannot be seen here
    (memory / "ddlbench-of-another").mkdir()
    for name in ("something", f"0-{10**30}", "0-x"):
        (heartbeats.node_folder(tmp_path / name) or memory).joinpath(
            name
        ).touch()  # what no rank writes ends no run
        heartbeats.tidy(tmp_path / name)
    strange = [
        heartbeats.node_folder(tmp_path / name) for name in ("something", f"0-{10**30}", "0-x")
    ]
    heartbeats.tidy_others()
    assert here.exists()  # for ten minutes: it may be a process of a container
    assert len([*here.iterdir()]) == 1 and len([*living.iterdir()]) == 2
    long_ago = time.time() - heartbeats.FORGOTTEN_S - 1
    for path in (*here.iterdir(), *living.iterdir(), here, living, memory / "ddlbench-of-another"):
        os.utime(path, (long_ago, long_ago))
    heartbeats.tidy_others()
    assert sorted(memory.iterdir()) == sorted(
        [living, fresh, memory / "ddlbench-of-another", *strange]
    )
    assert len([*living.iterdir()]) == 1


def test_a_rank_whose_folder_was_removed_makes_it_again(tmp_path: Path, memory: Path) -> None:
    program = RANK.replace(
        "folder, rank", f"heartbeats._bases = lambda: (Path({str(memory)!r}),)\nfolder, rank", 1
    )
    rank = subprocess.Popen([sys.executable, "-c", program, str(tmp_path), "0"])
    (here,) = heartbeats._places(tmp_path)
    soon(lambda: list(here.glob("0-*")))
    shutil.rmtree(here)
    soon(lambda: list(here.glob("0-*")))
    rank.kill()
    rank.wait()


def test_the_last_rank_may_take_the_folder_away(tmp_path: Path) -> None:
    """While another one looks: a thread of a run that had succeeded printed a traceback."""
    assert heartbeats.HeartbeatReader(40).silent(tmp_path / "gone", 0.0) == []
