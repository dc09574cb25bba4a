"""Ranks as processes of this machine: who they are told to be, where they meet, and how they end."""

import json
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest
from ddlbench.core import living
from ddlbench.run import local

from tests.conftest import until

TELL = """
import json, os, sys
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
told = {name: os.environ[name] for name in names}
open(sys.argv[1] + "/" + told["RANK"], "w").write(json.dumps(told))
"""
# Rank 1 does something, the others sleep, and say when they wake up.
ONE_DOES = """
import os, pathlib, signal, sys, time
if os.environ["RANK"] == "1":
    exec(sys.argv[1])
time.sleep(60)
pathlib.Path(sys.argv[2]).touch()
"""


def test_each_rank_is_told_its_place_and_all_the_same_port(tmp_path: Path) -> None:
    assert local.run([sys.executable, "-c", TELL, str(tmp_path)], 3) == 0
    told = [json.loads((tmp_path / str(rank)).read_text()) for rank in range(3)]
    assert len({one.pop("MASTER_PORT") for one in told}) == 1
    assert told == [
        {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "3",
            "LOCAL_WORLD_SIZE": "3",
            "MASTER_ADDR": "127.0.0.1",
        }
        for rank in range(3)
    ]


def test_launchers_at_the_same_time_have_ports_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Though none of their ranks listens yet. The ports are none of those that launchers of other
    tests take meanwhile.
    """
    monkeypatch.setattr(local, "PORTS", range(32500, 32540, 2))
    ports = []
    with ExitStack() as held:
        while True:
            try:
                ports.append(held.enter_context(local.reserved_port()))
            except OSError:
                break
        assert len(ports) == len({*ports}) > 15
    with local.reserved_port() as again:
        assert again in ports


@pytest.mark.parametrize("listens", [32600, 32601])
def test_a_port_where_somebody_listens_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, listens: int
) -> None:
    """Nor one before it: Horovod's ranks meet at the next."""
    monkeypatch.setattr(local, "PORTS", range(32600, 32602, 2))
    with local.reserved_port() as port:
        assert port == 32600
    with (
        socket.create_server(("", listens)),
        pytest.raises(OSError, match="32600"),
        local.reserved_port(),
    ):
        pass


@pytest.mark.parametrize(
    ("does", "code"),
    [("sys.exit(3)", 3), ("os.kill(os.getpid(), signal.SIGKILL)", 128 + signal.SIGKILL)],
)
def test_a_rank_that_fails_ends_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, does: str, code: int
) -> None:
    monkeypatch.setattr(local, "TIMEOUT_S", 0.2)
    before = {*psutil.Process().children()}
    woke = tmp_path / "woke"
    assert local.run([sys.executable, "-c", ONE_DOES, does, str(woke)], 3) == code
    assert {*psutil.Process().children()} == before
    assert not woke.exists()


def test_ranks_die_with_their_launcher(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "ddlbench.run.local", "--workers=2"]
    launcher = subprocess.Popen([*argv, sys.executable, "-c", "import time; time.sleep(3600)"])
    ours = psutil.Process(launcher.pid)
    ranks = until(lambda: len(found := ours.children()) == 2 and found, 60)
    launcher.kill()
    launcher.wait()
    try:
        assert until(lambda: not any(living.state(rank.pid) for rank in ranks), 10)
    finally:
        for rank in ranks:
            with suppress(psutil.NoSuchProcess):
                rank.kill()


def test_a_program_that_is_not_there_is_said() -> None:
    argv = [sys.executable, "-m", "ddlbench.run.local", "--workers=1", "/no/such/program"]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode != 0
    assert done.stderr.splitlines() == [
        "launcher local: [Errno 2] No such file or directory: '/no/such/program'"
    ]
