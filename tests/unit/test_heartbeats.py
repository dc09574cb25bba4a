"""Who has fallen silent: among the ranks of a node, and among nodes; and that a stalled file system
silences nobody.
"""

import errno
import os
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from ddlbench.core import heartbeats, notes
from ddlbench.core.files import write_json
from ddlbench.run import watch as monitoring
from ddlbench.run.cause import diagnose
from ddlbench.run.watch import Probe, RankMonitor, WatchResult, look, watch

from tests.conftest import until
from tests.facts import missing

pytestmark = pytest.mark.usefixtures("handlers")  # each test gives back its signals
soon = partial(until, seconds=20, every_s=0.01)


@pytest.mark.parametrize("nodes", [1, 2, 16, 64, 256, 1024, 10_000])
def test_all_nodes_together_write_and_read_little(nodes: int) -> None:
    """Opens and writes by nodes, opens and reads by the supervisor [1/s]; up to 256 nodes at most
    50.
    """
    heartbeat_s, poll_s = heartbeats.node_heartbeat_s(nodes), heartbeats.poll_s(nodes)
    read_s = poll_s * -(-0.9 * heartbeat_s // poll_s)
    assert 2 * nodes / heartbeat_s + 2 * nodes / read_s < max(50, nodes / 10)
    assert (
        heartbeats.node_silent_s(heartbeats.SILENT_S, nodes)
        > heartbeat_s + read_s + heartbeats.HEARTBEAT_S
    )
    assert heartbeats.noticed_s(heartbeats.SILENT_S, nodes) < (
        60 if nodes == 1 else 150 if nodes <= 256 else 300
    )


def test_a_rank_that_is_silent_is_named_after_it_was_heard(tmp_path: Path) -> None:
    heard = heartbeats.HeartbeatReader(40)
    for rank in (0, 1, 2):
        heartbeats.write_heartbeat(tmp_path / f"{rank}-77", 1)
    (tmp_path / "something").touch()
    for now in range(0, 200, 5):
        heartbeats.write_heartbeat(tmp_path / "0-77", now)
        if now < 50:
            heartbeats.write_heartbeat(tmp_path / "1-77", now)
        found = sorted(heard.silent(tmp_path, now))  # rank 2 stopped after its first beat
        assert found == [(1, 77, 40)] * (now > 45 + 40) + [(2, 77, 40)] * (now > 40), now


def test_who_was_held_up_has_not_listened(tmp_path: Path) -> None:
    heard = heartbeats.HeartbeatReader(40)
    for now in (0, 5, 10):
        heartbeats.write_heartbeat(tmp_path / "1-77", now)
        assert heard.silent(tmp_path, now) == []
    assert heard.silent(tmp_path, 1000) == []
    assert heard.silent(tmp_path, 1005) == []


def test_a_beat_takes_the_room_of_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "beat"
    sizes = set()
    for count in (1, 10, 10**9):
        heartbeats.write_heartbeat(path, count)
        sizes.add(path.stat().st_size)
        assert int(heartbeats.read_heartbeat(path)) == count
    assert len(sizes) == 1


@pytest.fixture
def monitor(tmp_path: Path) -> RankMonitor:
    for rank, local_rank in enumerate((0, 1, 0, 1)):
        write_json(
            tmp_path / f"rank-{rank}.json",
            {"pid": rank, "host": f"node{rank // 2}", "local_rank": local_rank},
        )
    monitor = RankMonitor(tmp_path, Probe(tmp_path, 1), 40, 1)  # the probe's clock is set by hand
    monitor.heartbeat_s = 0  # every look reads
    return monitor


def test_a_silent_node_is_named_by_its_first_rank(
    monitor: RankMonitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though each beat is read as often as it is written, and no more."""
    monitor.heartbeat_s, read, clock, kept = (
        heartbeats.HEARTBEAT_S,
        [],
        0.0,
        heartbeats.read_heartbeat,
    )
    monkeypatch.setattr(
        heartbeats, "read_heartbeat", lambda path: read.append(path.name) or kept(path)
    )  # type: ignore[func-returns-value]
    monkeypatch.setattr(monitoring.time, "monotonic", lambda: clock)
    for second in range(100):
        clock = monitor.probe.good_s = second
        heartbeats.write_heartbeat(monitor.folder / "beat-0", second)
        heartbeats.write_heartbeat(monitor.folder / "beat-2", min(second, 30))
        monitor.listen()
        assert [*monitor.silent] == ([2] if second >= 75 else []), second
        assert all(missing(why, "40 s") == [] for why in monitor.silent.values())
    assert sorted(read) == ["beat-0"] * 20 + ["beat-2"] * 20


def test_silence_counts_only_while_the_file_system_takes_writes(monitor: RankMonitor) -> None:
    heartbeats.write_heartbeat(monitor.folder / "beat-0", 1)
    for _ in range(100):
        monitor.listen()  # the probe's clock stands
    assert monitor.silent == {}


def test_a_node_whose_first_rank_ended_is_not_silent(monitor: RankMonitor) -> None:
    heartbeats.write_heartbeat(monitor.folder / "beat-2", 7)
    heartbeats.end(monitor.folder, 2, well=True)
    seen = WatchResult()
    for second in range(100):
        monitor.probe.good_s = second
        monitor.listen()
        look(monitor, {}, seen)
        assert seen.silent == {}, second
    (monitor.folder / "ended-2.json").unlink()
    monitor.listen()
    look(monitor, {}, seen)
    assert [*seen.silent] == [2] and missing(seen.silent[2], "40 s") == []


def test_an_empty_beat_is_no_silence(monitor: RankMonitor, tmp_path: Path) -> None:
    """What a rank leaves on a full disk, and in a node's full memory."""
    for path in (monitor.folder / "beat-0", tmp_path / "1-77"):
        path.touch()
    heard = heartbeats.HeartbeatReader(40)
    for second in range(0, 200, 5):
        monitor.probe.good_s = second
        monitor.listen()
        assert (monitor.silent, heard.silent(tmp_path, second)) == ({}, []), second


def test_a_silent_rank_is_named_by_its_node(monitor: RankMonitor) -> None:
    write_json(monitor.folder / "silent-3.json", {"why": "stopped (SIGSTOP)"})
    monitor.listen()
    assert monitor.silent == {3: "stopped (SIGSTOP)"}


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EIO])
def test_errors_that_may_pass_end_no_supervisor(
    monitor: RankMonitor, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as broken:
        for module, name in (
            (monitoring.os, "listdir"),
            (monitoring.os, "fsync"),
            (Path, "read_text"),
            (Path, "glob"),
        ):
            broken.setattr(module, name, fails)
        monitor.listen()
        assert notes.read(monitor.folder, "rank") == {}
        assert not monitor.probe._write()
    monitor.listen()
    assert len(monitor.ranks) == 4


def test_each_note_is_read_once(monitor: RankMonitor, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    text = Path.read_text
    monkeypatch.setattr(
        Path, "read_text", lambda path, **said: read.append(path) or text(path, **said)
    )  # type: ignore[func-returns-value]
    for _ in range(5):
        monitor.listen()
    assert len(read) == 4


def test_the_probes_clock_stands_while_a_write_hangs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Writes hang as on a frozen file system; a full one works."""
    hangs, goes_on = threading.Event(), threading.Event()

    class Frozen(Probe):
        def _write(self) -> bool:
            if hangs.is_set():
                goes_on.wait()
            return True

    probe = Frozen(tmp_path, 0.02)
    probe.start()
    soon(lambda: probe.good_s > 0.05)
    hangs.set()
    soon(lambda: probe.began is not None and time.monotonic() - probe.began > 0.3)
    stood = probe.good_s
    assert probe.began is not None
    probe.began -= monitoring.LATE_S
    probe.tell()
    assert "does not answer" in capfd.readouterr().err
    time.sleep(0.2)
    assert probe.good_s == stood
    hangs.clear()
    goes_on.set()
    soon(lambda: probe.good_s > stood + 0.05)
    assert probe.good_s < stood + 0.5
    probe.ended.set()


@pytest.mark.parametrize(("took_s", "good_s"), [(4.0, 1.0), (6.0, 0.0)])
def test_no_late_write_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, took_s: float, good_s: float
) -> None:
    probe, times = Probe(tmp_path, 0.5), iter([0.0, 1.0, 1.0 + took_s])
    monkeypatch.setattr(monitoring.time, "monotonic", lambda: next(times))
    waits = iter([False, True])
    monkeypatch.setattr(probe.ended, "wait", lambda _: next(waits))
    probe.run()
    assert probe.good_s == good_s


@pytest.mark.parametrize(
    ("code", "works"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EROFS, False)]
)
def test_a_full_file_system_is_one_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, works: bool
) -> None:
    def fails(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(monitoring.os, "fsync", fails)
    assert Probe(tmp_path, 1)._write() is works


RANK = """
import os, sys, time
from pathlib import Path
from ddlbench.core import heartbeats, notes
heartbeats.HEARTBEAT_S = 0.05
folder, rank, nodes = Path(sys.argv[1]), int(sys.argv[2]), 1
notes.introduce(folder, rank, rank)
heartbeats.keep_beating(folder, rank, rank, nodes, 2.0)
time.sleep(30)
"""


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(heartbeats, "POLL_S", 0.1)


@pytest.mark.parametrize("stopped", [0, 1])
@pytest.mark.usefixtures("quick")
def test_a_stopped_rank_is_named_with_its_host(tmp_path: Path, stopped: int) -> None:
    """Two real processes of one node; the first is the one that sends heartbeats for both."""
    start = f"{sys.executable} {tmp_path}/rank.py {tmp_path}"
    (tmp_path / "rank.py").write_text(RANK)
    beaten = [
        tmp_path / "beat-0",
        *(f"{heartbeats.node_folder(tmp_path)}/{rank}-*" for rank in (0, 1)),
    ]
    stop = f"until ls {' '.join(map(str, beaten))} >/dev/null 2>&1; do sleep 0.1; done; sleep 0.5"
    command = f"{start} 0 & a=$!; {start} 1 & b=$!; {stop}; kill -STOP ${'ab'[stopped]}; wait"
    seen = watch(
        ["bash", "-c", command], tmp_path, silent_s=2.0
    )  # more than a busy machine keeps a process waiting
    assert list(seen.silent) == [stopped]
    told = diagnose(tmp_path, 2, seen)
    assert (told["cause"], told["rank"]) == ("stopped answering", stopped)
    assert told["host"] == os.uname().nodename
    assert "SIGSTOP" in told["message"]


# What ranks 0 and 1 do, and which of them is then silent. `stay` holds Python's lock, as a rank
# does that drains its output or writes a profiler's report when its threads are gone.
STAY = "import ctypes; stay = ctypes.PyDLL(None).sleep; "
END = "time.sleep(1); heartbeats.end(folder, rank, well=True); "
FULL = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); "
STOP = "os.kill(os.getpid(), 19)"


@pytest.mark.parametrize(
    ("does", "silent"),
    [
        pytest.param(
            (f"{STAY}{END}stay(4)", f"time.sleep(4); {END}"), [], id="the first stays when it ended"
        ),
        pytest.param(
            (f"time.sleep(4); {END}", f"{STAY}{END}stay(4)"),
            [],
            id="the second stays when it ended",
        ),
        pytest.param(
            (f"{STAY}time.sleep(1); stay(30)", f"time.sleep(4); {END}"),
            [0],
            id="the first stays, not ended",
        ),
        pytest.param(
            (END, f"time.sleep(3); {STOP}"), [1], id="the second stops when the first ended"
        ),
        pytest.param(
            (f"{FULL}time.sleep(4)", f"time.sleep(1); {FULL}time.sleep(4)"),
            [],
            id="they cannot write",
        ),
    ],
)
@pytest.mark.usefixtures("quick")
def test_who_ended_or_cannot_write_is_not_silent(
    tmp_path: Path, does: tuple[str, str], silent: list[int]
) -> None:
    """Two real processes of one node; the silence that counts is 2 s."""
    for rank in (0, 1):
        (tmp_path / f"rank-{rank}.py").write_text(RANK.replace("time.sleep(30)", does[rank]))
    command = " & ".join(
        f"{sys.executable} {tmp_path}/rank-{rank}.py {tmp_path} {rank}" for rank in (0, 1)
    )
    seen = watch(["bash", "-c", f"{command}; wait"], tmp_path, silent_s=2.0)
    assert list(seen.silent) == silent


@pytest.mark.usefixtures("quick")
def test_first_ranks_of_two_nodes_on_one_host_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """Virtual nodes share their host's memory; each rank is the first of its node, and both have
    ended well.
    """
    own = RANK.replace("(folder, rank, rank, nodes", "(folder, rank, 0, 2").replace(
        "time.sleep(30)", END
    )
    assert own.count("rank, 0, 2") == 1
    (tmp_path / "rank.py").write_text(own)
    command = f"{sys.executable} {tmp_path}/rank.py {tmp_path}"
    ranks = [subprocess.Popen([*command.split(), str(rank)]) for rank in (0, 1)]
    try:
        assert [rank.wait(60) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()


@pytest.mark.usefixtures("quick")
def test_a_rank_that_ended_is_not_blamed_for_the_others(tmp_path: Path) -> None:
    for rank, does in enumerate((END, "time.sleep(2); os.kill(os.getpid(), 9)")):
        (tmp_path / f"rank-{rank}.py").write_text(RANK.replace("time.sleep(30)", does))
    start = f"{sys.executable} {tmp_path}/rank"
    # A launcher that does not notice at once.
    seen = watch(
        ["bash", "-c", f"{start}-0.py {tmp_path} 0 & {start}-1.py {tmp_path} 1; sleep 2; exit 1"],
        tmp_path,
    )
    told = diagnose(tmp_path, 2, seen)
    assert (told["cause"], told["rank"]) == ("killed", 1)


def test_a_silent_rank_that_said_why_it_failed_is_not_called_silent(tmp_path: Path) -> None:
    notes.report(tmp_path, 0, ValueError("no such picture"))
    told = diagnose(tmp_path, 2, WatchResult(code=1, silent={0: "did not answer for 40 s"}))
    assert (told["cause"], told["rank"]) == ("exception", 0)


@pytest.mark.parametrize(("ends", "code"), [("exit 3", 3), ("kill -KILL $$", 128 + 9)])
def test_a_launcher_ends_with_its_code_or_that_of_its_signal(
    tmp_path: Path, ends: str, code: int
) -> None:
    assert watch(["bash", "-c", ends], tmp_path).code == code


@pytest.mark.parametrize("fails", [False, True])
def test_a_rank_that_fails_while_the_run_is_stopped_has_failed(tmp_path: Path, fails: bool) -> None:
    """A run that was stopped leaves no reason, so a rank's error would be lost."""
    (tmp_path / notes.STOPPED_NOTE).touch()
    if fails:
        notes.report(tmp_path, 1, ValueError("no such picture"))
    seen = watch(["bash", "-c", "exit 3"], tmp_path)
    assert seen.stopped is not fails


FROZEN_S = 56


@pytest.mark.slow
def test_a_frozen_file_system_silences_nobody(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """ext4 on a loop device, and fsfreeze: whoever writes there stands. Then one rank is really
    stopped.
    """
    image, disk = tmp_path / "image", tmp_path / "disk"
    disk.mkdir()
    image.write_bytes(b"")
    os.truncate(image, 32 << 20)
    made = [["mkfs.ext4", "-q", "-F", image], ["mount", "-o", "loop", image, disk]]
    if any(subprocess.run(command).returncode for command in made):
        pytest.skip("cannot mount a file system from a file here")
    try:
        (tmp_path / "rank.py").write_text(
            RANK.replace("heartbeats.HEARTBEAT_S = 0.05\n", "")
            .replace(", 2.0)", ")")
            .replace("30", "300")
        )
        start = f"{sys.executable} {tmp_path}/rank.py {disk}"
        freeze = (
            f"sleep 10; fsfreeze -f {disk}; sleep {FROZEN_S}; fsfreeze -u {disk}; touch"
            f" {tmp_path}/thawed; sleep 20"
        )
        command = (
            f"{start} 0 & {start} 1 & b=$!; {freeze}; kill -STOP $b; touch {tmp_path}/stopped; wait"
        )
        began = time.monotonic()
        seen = watch(["bash", "-c", command], disk)
        assert time.monotonic() - began > 10 + FROZEN_S + 20  # nobody was called silent before
        assert list(seen.silent) == [1]
        assert time.time() - (tmp_path / "stopped").stat().st_mtime < 60
        said = capfd.readouterr().err
        assert said.count("does not answer") == said.count("answers again") == 1
    finally:
        subprocess.run(["fsfreeze", "-u", disk], capture_output=True)
        subprocess.run(["umount", disk])
