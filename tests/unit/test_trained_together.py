"""Ranks of a program that train each for itself are found, and ranks that train together are not
accused.
"""

import json
import random
import socket
from pathlib import Path

import pytest
from ddlbench.analysis import summary
from ddlbench.run import meeting, trained_together
from ddlbench.run.meeting import Met
from ddlbench.run.program import read_again
from ddlbench.run.readings import Line, Output
from ddlbench.run.readings import lines as reading_of_lines
from ddlbench.run.trained_together import Told, judge

from tests.facts import missing
from tests.unit.programs import made, script, spec

JOINED, LISTENED, NOBODY, NOT_SEEN = Met(True, 2), Met(True, 1), Met(False, 0), Met()


def ranks(
    step_s: tuple[float, ...] = (0.2, 0.2),
    count: int = 40,
    seeds: tuple[int, ...] = (1, 2),
    late_s: float = 0.0,
    every: int = 1,
) -> dict[int, list[Told]]:
    """Lines of ranks with such times of a step; ranks of one seed have the same losses."""
    told = {}
    for rank, (each_s, seed) in enumerate(zip(step_s, seeds, strict=True)):
        random_of = random.Random(seed)
        told[rank] = [
            Told(
                (None, float(step)),
                1e9 + rank * late_s + step * each_s,
                f"{2.5 + random_of.random():.4f}",
            )
            for step in range(0, count * every, every)
        ]
    return told


def shuffled(told: dict[int, list[Told]]) -> dict[int, list[Told]]:
    """The lines as one stream in which nobody says whose they are."""
    return {
        0: sorted((one for of_rank in told.values() for one in of_rank), key=lambda one: one.time_s)
    }


@pytest.mark.parametrize(
    ("told", "met", "says", "together"),
    [
        (ranks(), JOINED, None, "yes"),
        (ranks(late_s=0.15), JOINED, None, "yes"),
        (ranks(every=10, late_s=0.15), JOINED, None, "yes"),
        ({0: ranks()[0]}, JOINED, None, "yes"),  # one rank prints alone
        ({}, JOINED, None, "yes"),  # a table
        ({0: ranks()[0]}, NOT_SEEN, 2, "yes"),
        ({0: ranks()[0]}, NOT_SEEN, None, "unconfirmed"),
        (ranks(), NOBODY, None, "unconfirmed"),
        (ranks(), LISTENED, None, "unconfirmed"),
        (ranks(seeds=(1, 1)), JOINED, None, "unconfirmed"),  # averages, or the same training twice
        (ranks(seeds=(1, 1)), NOBODY, None, "no"),
        (ranks(seeds=(1, 1)), NOT_SEEN, None, "no"),
        (ranks((0.2, 0.21), 60), JOINED, 2, "no"),  # ahead by three steps at the end
        (ranks((0.2, 0.2), late_s=0.7), NOBODY, None, "no"),
        (ranks((0.02, 0.024), 60, every=5), JOINED, None, "unclear"),
        (ranks(), JOINED, 1, "no"),
        (shuffled(ranks((0.2, 0.21), 60)), NOT_SEEN, None, "no"),
        (
            shuffled(ranks(seeds=(1, 1), late_s=0.03)),
            NOT_SEEN,
            None,
            "unconfirmed",
        ),  # may be one that prints twice
    ],
)
def test_the_verdict(
    told: dict[int, list[Told]], met: Met, says: int | None, together: str
) -> None:
    verdict = judge(2, told, met, says)
    if together == "unclear":  # lines every 5 steps of 0.02 s: the rank is ahead by 30 steps
        together = "no"
    assert verdict.together == together, verdict


@pytest.mark.parametrize("seed", range(200))
def test_made_up_ranks(seed: int) -> None:
    """Ranks that wait for each other are never accused; those that drift by more than two steps
    always are.
    """
    rng = random.Random(seed)
    workers, each_s = rng.choice([2, 3, 4, 8]), 10 ** rng.uniform(-1.2, 0.5)
    count, every = rng.randint(8, 200), rng.choice([1, 1, 5, 10])
    together, alone = ({rank: [] for rank in range(workers)} for _ in range(2))
    at = [1e9] * workers
    own = [1e9 + rng.random() * each_s for _ in range(workers)]
    speed = [1.0 + 0.1 * rank for rank in range(workers)]
    for step in range(count * every):
        took = [
            each_s * rng.uniform(0.7, 1.3) * (5 if rng.random() < 0.02 else 1)
            for _ in range(workers)
        ]
        begun = max(at)  # the average waits for all
        at = [begun + one for one in took]
        end_s = max(at)
        at = [end_s] * workers
        own = [time_s + each_s * speed[rank] for rank, time_s in enumerate(own)]
        if step % every == 0:
            for rank in range(workers):
                loss = f"{rng.random():.5f}"
                late_s = rng.random() * 0.01
                together[rank].append(Told((None, float(step)), begun + took[rank] + late_s, loss))
                alone[rank].append(Told((None, float(step)), own[rank] + late_s, loss))
    assert judge(workers, together, Met(True, workers)).together == "yes"
    behind = 0.75 * count * every * 0.1 * (workers - 1)
    if behind > 3 and behind * each_s > 0.2:
        assert judge(workers, alone, Met(True, workers)).together == "no"


def test_clocks_of_several_hosts_may_differ() -> None:
    apart = ranks(late_s=100.0)
    assert judge(2, apart, JOINED).together == "no"
    assert judge(2, apart, JOINED, one_clock=False).together == "yes"
    assert judge(2, ranks((0.2, 0.25), 60, late_s=100.0), JOINED, one_clock=False).together == "no"


@pytest.mark.parametrize(
    ("line", "alone"),
    [
        ("world_size: 1", True),
        ("Total img/sec on 1 CPU(s): 12.3", True),
        ("world size = 2", False),
        ("on 12 GPUs", False),
    ],
)
def test_a_line_says_that_it_is_one_rank(line: str, alone: bool) -> None:
    assert trained_together.says_alone([line], 2) is alone
    assert judge(2, {}, NOT_SEEN, says_one_rank=alone).together == (
        "no" if alone else "unconfirmed"
    )


def test_a_port_that_is_listened_at_and_its_connections_are_seen(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert meeting.look(port) == Met(True, 0)
        with socket.create_connection(("127.0.0.1", port)), server.accept()[0]:
            assert meeting.look(port) == Met(True, 1)
            seen = meeting.Meeting(tmp_path, port, 1)
            assert meeting.read(tmp_path) == Met(False, 0)
            seen.watch()
            assert seen.complete and meeting.read(tmp_path) == Met(True, 1)
    assert meeting.look(port) == Met(False, 0)


JOIN = """import socket
port = int(os.environ["MASTER_PORT"])
server = socket.create_server(("127.0.0.1", port)) if rank == 0 else None
for _ in range(200):
    try:
        joined = socket.create_connection(("127.0.0.1", port)); break
    except OSError:
        time.sleep(0.02)
held = [server.accept() for _ in range(2)] if server else []
time.sleep(0.5)
"""
EACH_ITS_OWN = 'print(f"step {step} loss {1 / (step + 1 + rank):.4f}", flush=True)'


@pytest.mark.parametrize(
    ("before", "body", "together"),
    [
        (JOIN, EACH_ITS_OWN, "yes"),
        ("", EACH_ITS_OWN, "unconfirmed no"),  # on a busy machine one may get ahead of the other
        ("", 'print(f"step {step} loss {1 / (step + 3):.5f}", flush=True)', "no"),
        (JOIN, f"time.sleep(0.1 * rank); {EACH_ITS_OWN}", "no"),
    ],
)
def test_the_record_says_whether_ranks_trained_together(
    tmp_path: Path, before: str, body: str, together: str
) -> None:
    run = spec(script(tmp_path, body, before=before), 2)
    columns = summary.make(made(tmp_path, run))["run"]
    assert columns["ranks_together"] in together.split(), columns["ranks_evidence"]


def test_reading_again_keeps_how_ranks_met(tmp_path: Path) -> None:
    place = script(tmp_path, EACH_ITS_OWN, before=JOIN)
    record = made(tmp_path, spec(place, 2))
    assert record.value("ddlbench_reading")["together"]["met"] == [True, 2]
    again = spec(place, 2, patterns=(r"step (?P<step>\d+)",))
    assert missing(read_again(again, record.folder), "read again: ", "anew") == []
    log = [
        line
        for line in (record.folder / "run.mllog").read_text().splitlines()
        if "ddlbench_reading" in line
    ]
    assert json.loads(log[-1].partition(" ")[2])["value"]["together"]["met"] == [True, 2]


def test_a_step_s_unit_may_be_samples(tmp_path: Path) -> None:
    """Ranks that print each 5 steps, in samples, and are half a step apart."""
    body = "step % 5 or print(f'[{step * 4}/4000] loss {1 / (step + 1 + rank):.4f}', flush=True)"
    run = spec(
        script(tmp_path, f"time.sleep(0.03 * (step == 0) * rank); {body}", steps=40, before=JOIN),
        2,
        patterns=(r"\[(?P<seen>\d+)/\d+\] loss (?P<loss>\S+)",),
    )
    assert summary.make(made(tmp_path, run))["run"]["ranks_together"] == "yes"


@pytest.mark.parametrize(("parts", "together"), [(8, "yes"), (None, "no")])
def test_within_a_step_ranks_need_not_wait(
    tmp_path: Path, parts: int | None, together: str
) -> None:
    """Lines of parts of a step, of which one rank is five ahead."""
    lines = [
        Line(1e9 + 0.1 * part + 0.5 * rank, f"part {part} loss {1 / (part + 2 + rank):.4f}", rank)
        for part in range(80)
        for rank in range(2)
    ]
    lines.sort(key=lambda line: line.time_s)
    run = spec(
        tmp_path, 2, patterns=(r"part (?P<step>\d+) loss (?P<loss>\S+)",), parts_per_step=parts
    )
    made_of = reading_of_lines.read(Output(run, tmp_path, tmp_path, lines, []))
    assert judge(2, made_of.told, JOINED).together == together
