"""Where nobody reaps orphans (a container whose PID 1 is a program): a zombie is dead for whoever
asks.
"""

import json
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from ddlbench.core import living
from ddlbench.core.files import write_json
from ddlbench.run import cause, watch

CONTAINER = ["unshare", "--pid", "--fork", "--mount-proc"]
# PID 1, which asks for none of its children: a rank, whose parent has gone, is killed and stays as
# a zombie. Then a supervisor looks for what that rank left.
FIRST = """
import os, signal, subprocess, sys, time
rank = subprocess.run([sys.executable, "-c", sys.argv[1], sys.argv[3]], capture_output=True, text=True, check=True)
pid = int(rank.stdout)
os.kill(pid, signal.SIGKILL)
while " Z " not in open(f"/proc/{pid}/stat").read():
    time.sleep(0.01)
sys.exit(subprocess.run([sys.executable, "-c", sys.argv[2], sys.argv[3], str(pid)]).returncode)
"""
RANK = """
import os, sys, time
from pathlib import Path
from ddlbench.core import heartbeats, living, notes
folder = Path(sys.argv[1])
pid = os.fork()
if pid:
    while not (folder / "ready").exists():
        time.sleep(0.01)
    print(pid)
    sys.exit()
for file in (1, 2):
    os.dup2(os.open(os.devnull, os.O_WRONLY), file)
notes.introduce(folder, 0, 0)
living.mark(folder / "mark.json", 1e9)
(folder / "ready").touch()
time.sleep(1000)
"""
SUPERVISOR = """
import json, socket, sys, time
from pathlib import Path
from ddlbench.core import heartbeats, living
from ddlbench.data.datasets import _files
from ddlbench.run import watch
folder, pid = Path(sys.argv[1]), int(sys.argv[2])
heartbeats._bases = lambda: (folder / "shm",)
(folder / "shm").mkdir()
here = heartbeats.node_folder(folder)
heartbeats.write_heartbeat(here / f"0-{pid}", 1)
host = socket.gethostname()
(folder / f".{host}-{pid}-table.csv").touch()
(folder / f"{_files.FETCHING}{host}-{pid}").mkdir()
began = time.monotonic()
watch.end_survivors(folder)
took_s = time.monotonic() - began
heartbeats.tidy(folder)
living.remove_left(folder)
_files._remove_leftovers(folder)
left = sorted(path.name for path in folder.rglob("*") if str(pid) in path.name)
seen = {"state": living.state(pid), "lives": living.lives(living.read(folder / "mark.json")), "left": left}
(folder / "seen.json").write_text(json.dumps(seen | {"took_s": took_s}))
"""


@pytest.fixture
def container() -> list[str]:
    """A command that gives a program a list of processes of its own, in which it is the first."""
    for command in (CONTAINER, [CONTAINER[0], "--user", "--map-root-user", *CONTAINER[1:]]):
        if subprocess.run([*command, "true"], capture_output=True).returncode == 0:
            return command
    pytest.skip("unshare makes no list of processes here")


def test_a_rank_that_nobody_reaped_is_dead(tmp_path: Path, container: list[str]) -> None:
    python = [*container, sys.executable, "-c", FIRST, RANK, SUPERVISOR, str(tmp_path)]
    done = subprocess.run(python, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert (seen["state"], seen["lives"], seen["left"]) == (None, False, [])
    assert seen["took_s"] < 5
    assert "still runs" not in done.stdout


@pytest.mark.parametrize(("since_s", "ends"), [(0.0, True), (-60.0, False)])
def test_a_process_that_has_got_the_number_of_an_old_rank_lives_on(
    tmp_path: Path, since_s: float, ends: bool
) -> None:
    """A rank is known by its number and by when it started."""
    with subprocess.Popen(["sleep", "100"]) as process:
        started = psutil.Process(process.pid).create_time() + since_s
        who = {"host": socket.gethostname(), "pid": process.pid, "started": started}
        write_json(tmp_path / "rank-0.json", who)
        watch.end_survivors(tmp_path)
        ended = process.poll() is not None
        process.kill()
    assert ended is ends


def test_a_process_that_does_not_end_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits in the system, where no signal reaches it (state D)."""
    stuck = SimpleNamespace(pid=12, kill=lambda: None, is_running=lambda: True)
    monkeypatch.setattr(living, "state", lambda pid: psutil.STATUS_DISK_SLEEP)
    with pytest.raises(living.UnendedError, match=r"process 12 \(disk-sleep\)"):
        living.end([stuck], 0.0)
    seen = watch.WatchResult(
        code=137, silent={0: "did not answer for 40 s"}, unended=living.unended([stuck], 0.0)
    )
    failure = cause.diagnose(tmp_path, 2, seen)
    assert failure["cause"] == "stopped answering"
    assert "12 (disk-sleep)" in failure["message"]
