"""A benchmark that is ended takes its ranks with it: they would wait for each other's turn for
ever. All of them in one table.
"""

import json
import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

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
from importlib import import_module
from pathlib import Path
from typing import Any
sys.path.insert(0, {bench!r})
from sides import Side, train
here = Path({folder!r})
sides = [Side([sys.executable, "-c", {rank!r}, str(here / name)], here / ("of-" + name)) for name in "ab"]
train(sides, 1, here, 1)
"""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_its_ranks_end_however_it_ends(how: signal.Signals, tmp_path: Path) -> None:
    code = BENCHMARK.format(
        bench=str(BENCH), folder=str(tmp_path), rank=RANK.format(ranks=str(BENCH / "ranks"))
    )
    environment = os.environ | {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    benchmark = subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment,
        stderr=subprocess.DEVNULL,
        # Where these tests run in a shell's background, children would inherit that Ctrl-C does
        # nothing.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    until(
        lambda: all((tmp_path / name).exists() and (tmp_path / name).read_text() for name in "ab"),
        60,
    )
    ranks = [json.loads((tmp_path / name).read_text()) for name in "ab"]
    benchmark.send_signal(how)
    benchmark.wait(60)
    until(lambda: not any(map(living.state, ranks)), 30)


def test_one_table_says_what_each_benchmark_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """And which one ended badly, said nothing, or took too long."""
    monkeypatch.syspath_prepend(BENCH)
    every = import_module("every")
    code = (
        "import sys; sys.path.insert(0, {bench!r}); from told import tell; tell('a', 'b',"
        " [{ratio}], {limit})"
    )
    for name, text in {
        "good": code.format(bench=str(BENCH), ratio=1.01, limit=0.99),
        "no_limit": code.format(bench=str(BENCH), ratio=0.5, limit=None),
        "slow": code.format(bench=str(BENCH), ratio=0.9, limit=0.99),
        "broken": "raise SystemExit(3)",
        "endless": "import time; time.sleep(600)",
    }.items():
        (tmp_path / f"{name}.py").write_text(text)
    made = [
        every.Benchmark(path.stem, "", 0.05 if path.stem == "endless" else 5.0)
        for path in tmp_path.glob("*.py")
    ]
    monkeypatch.setattr(every, "BENCHMARKS", sorted(made))
    monkeypatch.setattr(every, "HERE", tmp_path)
    monkeypatch.setattr(every, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        every.main()
    assert ended.value.code == 1
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in capsys.readouterr().out.splitlines()[2:-1]
    ]
    told = {row[0]: row for row in rows}
    assert [told[name][5] for name in ("good", "no_limit", "slow")] == ["yes", "", "NO"]
    assert told["good"][1:5] == ["a", "b", "1.010 (1.010..1.010)", "at least 0.99"]
    assert "exit code 3" in told["broken"][1] and "over its time" in told["endless"][1]
    assert (tmp_path / "kept/broken.txt").exists()
