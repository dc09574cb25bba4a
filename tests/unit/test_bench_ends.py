"""A benchmark that is ended takes its ranks with it: they would wait for each other's turn for ever."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ddlbench.core import living

from tests.conftest import until

BENCH = Path(__file__).resolve().parents[2] / "bench"
# Two sides of one rank each, which take turns for ever.
RANK = """
import os, sys, time
from pathlib import Path
sys.path.insert(0, {ranks!r})
from stopwatch import Stopwatch
watch = Stopwatch()
Path(sys.argv[1]).write_text(str(os.getpid()))
while True:
    with watch.epoch():
        time.sleep(0.1)
"""
BENCHMARK = """
import sys
from pathlib import Path
sys.path.insert(0, {bench!r})
from sides import Side, train
here = Path({folder!r})
sides = [Side([sys.executable, "-c", {rank!r}, str(here / name)], here / ("of-" + name)) for name in "ab"]
train(sides, 1, here, 1)
"""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_its_ranks_end_however_it_ends(how: signal.Signals, tmp_path: Path) -> None:
    code = BENCHMARK.format(bench=str(BENCH), folder=str(tmp_path), rank=RANK.format(ranks=str(BENCH / "ranks")))
    environment = os.environ | {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    benchmark = subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.DEVNULL)
    until(lambda: all((tmp_path / name).exists() and (tmp_path / name).read_text() for name in "ab"), 60)
    ranks = [json.loads((tmp_path / name).read_text()) for name in "ab"]
    benchmark.send_signal(how)
    benchmark.wait(60)
    until(lambda: not any(map(living.state, ranks)), 30)
