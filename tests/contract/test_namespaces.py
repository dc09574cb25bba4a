"""A training between network namespaces leaves no process behind, loaders' worker processes among
them.
"""

import time
from pathlib import Path

import pytest
from ddlbench.core import notes
from ddlbench.settings.machine import load_machine

from tests.builders.plans import run_spec
from tests.conftest import shared
from tests.contract import launches
from tests.contract.test_failure import assert_gone
from tests.unit.test_namespaces import REAL


@REAL
@pytest.mark.slow
def test_nothing_is_left_when_the_supervisor_is_killed(data: Path, tmp_path: Path) -> None:
    spec = run_spec(
        machine="local-netem",
        workers=2,
        workers_per_node=1,
        loader="native",
        loader_threads=2,
        epochs=500,
    )
    folder = tmp_path / "run"
    started = launches.start(
        spec, folder, data, load_machine("local-netem"), ("python", "-m", "ddlbench.train")
    )
    supervisor, marker = started
    give_up = time.monotonic() + 120 * shared()
    while "epoch 2/500" not in (tmp_path / launches.OUTPUT).read_text():
        assert supervisor.poll() is None, (tmp_path / launches.OUTPUT).read_text()
        assert time.monotonic() < give_up
        time.sleep(0.2)
    ranks = {who["pid"] for who in notes.read(folder / ".partial", "rank").values()}
    workers = [
        pid for pid in launches.survivors(marker) if pid not in ranks and parent(pid) in ranks
    ]
    assert len(workers) == 2 * 2 * 2  # of two splits, on two ranks
    supervisor.kill()
    supervisor.wait()
    assert_gone(marker)


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
