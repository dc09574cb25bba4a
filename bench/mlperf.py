"""How fast a large MLPerf log is read, beside reading each of its lines with the standard json
module, in the same run.

    python bench/mlperf.py [--mib 1000] [--log result_0.txt]

The log is one of 64 ranks, made up here, or a given one, over and over. Prints the wall time of
both, their ratio, and the peak memory of our reader's processes together. Ends with 1 if the ratio
is below 1.5, or the memory above 300 MiB.
"""

import argparse
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workflow"))

from ddlbench.records import _mllog

LIMIT, LIMIT_MIB = 1.5, 300  # ratio and memory


def made_up(epochs: int = 40, ranks: int = 64) -> bytes:
    """A log as launchers collect it: ranks that start, weights, epochs with rates, other programs'
    lines.
    """
    at, lines = 1_650_000_000_000, []

    def add(key: str, value: object = None, **metadata: object) -> None:
        about = {
            "namespace": "",
            "time_ms": at,
            "event_type": "POINT_IN_TIME",
            "key": key,
            "value": value,
        }
        lines.append(
            ":::MLLOG "
            + json.dumps(
                about | {"metadata": {"file": "/workspace/fit.py", "lineno": 915, **metadata}}
            )
        )

    for rank in range(ranks):
        add("init_start")
        lines.append(f"{rank}: NCCL INFO Channel 00/0 : {rank}[0] -> 1[0] via P2P")
    for number in range(161):
        add("weights_initialization", tensor=f"stage1_unit{number}_conv1_weight")
    add("run_start")
    for epoch in range(1, epochs + 1):
        add("epoch_start", epoch_num=epoch)
        at += 7650
        add("epoch_stop", epoch_num=epoch)
        add("throughput", 167_544.0473241128)
        add("tracked_stats", {"throughput": 167_544.0473241128}, step=epoch)
        if epoch % 4 == 0:
            add("eval_start", epoch_num=epoch)
            add("eval_stop", epoch_num=epoch)
            add("eval_accuracy", epoch / 50, epoch_num=epoch)
    add("run_stop", status="success")
    return "\n".join(lines).encode() + b"\n"


def with_json(path: Path) -> int:
    """Each line with the standard module: how many there are."""
    count = 0
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith(":::MLLOG "):
                count += json.loads(line[9:])["time_ms"] > 0
    return count


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mib", type=int, default=1000, help="size of the log")
    parser.add_argument("--log", type=Path, help="a log to repeat; left out, a made-up one")
    given = parser.parse_args()
    one = given.log.read_bytes() if given.log else made_up()
    with tempfile.NamedTemporaryFile(suffix=".txt") as file:
        for _ in range((given.mib << 20) // len(one) + 1):
            file.write(one)
        file.flush()
        path = Path(file.name)
        start = time.perf_counter()
        log = _mllog.read(path)
        ours_s = time.perf_counter() - start
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        peak = own + 2 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        start = time.perf_counter()
        count = with_json(path)
        json_s = time.perf_counter() - start
        size = path.stat().st_size >> 20
    print(f"{size} MiB, {log.lines} MLPerf lines, {log.damaged} damaged; json read {count}")
    print(
        f"ours {ours_s:.2f} s, json line by line {json_s:.2f} s: {json_s / ours_s:.2f} times as"
        " fast"
    )
    print(f"at most {peak:.0f} MiB in all processes, what they share counted in each")
    return int(json_s < LIMIT * ours_s or peak > LIMIT_MIB)


if __name__ == "__main__":
    sys.exit(main())
