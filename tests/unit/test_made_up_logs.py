"""Logs that nobody printed, by seeds: whatever happens to their lines, they are read right or
refused.

A training of even steps prints as programs do. Then its lines suffer what lines suffer: several
ranks print, neighbours change places, lines are lost, a pipe keeps them back, the run is killed and
goes on from a checkpoint.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from ddlbench.run.readings import Line, Output, Reading, UnreadError, lines

from tests.unit.programs import spec

FAR = 0.05


@dataclass
class Training:
    """Steps that were made, and the lines that tell of them: each with its time [s], text and
    rank.
    """

    draw: random.Random
    batch: int = 8
    workers: int = 1
    per_epoch: int = 40
    epochs: int = 3
    every: int = 1
    first: int = 0
    step_s: float = 0.1
    validates_s: float = 0.0
    printed: list[Line] = field(default_factory=list)
    again_s: list[float] = field(default_factory=list)
    whole: bool = (
        True  # no line was lost: without them, epochs that nothing names cannot be counted
    )

    @property
    def rate(self) -> float:
        return self.batch / self.step_s

    @property
    def last(self) -> int:
        """The last step that any line tells of, counted from the first that one does."""
        return (self.epochs - 1) * self.per_epoch + (self.per_epoch - 1) // self.every * self.every


def number(of: Training, value: int, style: int) -> str:
    """A number as people print it."""
    return [
        f"{value}",
        f"{value:,}",
        f"{value:_}",
        f"{value:,}".replace(",", "'"),
        f"{value:6d}",
        f"{value:06d}",
    ][style]


# Each form: what a line says of epoch e, step n of it (from `first` on) and the loss; and the
# patterns that are right.
FORMS: dict[str, tuple[Callable[..., str], tuple[str, ...]]] = {
    "step of the run": (
        lambda of, e, n, loss, style: (
            f"step {number(of, e * of.per_epoch + n, style)} | loss {loss}"
        ),
        (r"step\s+(?P<step>\d[\d,_']*) \| loss (?P<loss>\S+)",),
    ),
    "step of an epoch": (
        lambda of, e, n, loss, style: (
            f"Epoch [{e}/{of.epochs}] Step [{n}/{of.per_epoch}] Loss: {loss}"
        ),
        (r"Epoch \[(?P<epoch>\d+)/\d+\] Step \[(?P<step>\d+)/(?P<of>\d+)\] Loss: (?P<loss>\S+)",),
    ),
    "without its epoch": (
        lambda of, e, n, loss, style: f"[{n:4d}/{of.per_epoch}] loss={loss}",
        (r"\[ *(?P<step>\d+)/(?P<of>\d+)\] loss=(?P<loss>\S+)",),
    ),
    "samples of an epoch": (
        lambda of, e, n, loss, style: (
            f"Train Epoch: {e} [{n * of.batch}/{of.per_epoch * of.batch}]\tLoss: {loss}"
        ),
        (r"Epoch: (?P<epoch>\d+) \[(?P<seen_all>\d+)/(?P<of>\d+)\]\s+Loss: (?P<loss>\S+)",),
    ),
    "samples of the run": (
        lambda of, e, n, loss, style: (
            f"seen {number(of, (e * of.per_epoch + n) * of.batch, style)} images, loss {loss}"
        ),
        (r"seen\s+(?P<seen_all>\d[\d,_']*) images, loss (?P<loss>\S+)",),
    ),
    "a bar": (
        lambda of, e, n, loss, style: (
            f"\rEpoch {e}: {100 * n // of.per_epoch:3d}%|##  | {n}/{of.per_epoch} [00:01<00:04,"
            f" loss={loss}]"
        ),
        (r"Epoch (?P<epoch>\d+):.*\| (?P<step>\d+)/(?P<of>\d+) \[.*loss=(?P<loss>[^\]]+)",),
    ),
    "parts of a step": (
        lambda of, e, n, loss, style: (
            f"iter {4 * (e * of.per_epoch + n)} step {e * of.per_epoch + n} | loss train: {loss},"
            " iter time: 12 ms"
        ),
        (r"step (?P<step>\d+) \| loss train: (?P<loss>[^,]+)",),
    ),
    "colours": (
        lambda of, e, n, loss, style: (
            f"\x1b[31mstep: {number(of, e * of.per_epoch + n, style)}  \x1b[32mloss: {loss}\x1b[39m"
        ),
        (r"step: +(?P<step>\d[\d,_']*) loss: (?P<loss>\S+)",),
    ),
}
WRONG = (  # what somebody may write in a hurry
    r"(?P<step>\d+)",
    r"\D(?P<step>\d+)\D",
    r"(?P<step>\d+)/",
    r"(?i)epoch\W*(?P<step>\d+)",
    r"(?P<seen_all>\d+)/",
    r"iter (?P<step>\d+)",
    r"(?P<percent>\d+)%",
    r"(?i)epoch\W*(?P<epoch>\d+).*?(?P<step>\d+)",
)


def trained(draw: random.Random) -> tuple[Training, tuple[str, ...]]:
    """Return a training that printed without trouble, and the patterns that read it."""
    of = Training(
        draw,
        batch=draw.choice([4, 8, 24]),
        per_epoch=draw.randint(24, 80),
        epochs=draw.randint(1, 4),
    )
    of.every, of.first = draw.choice([1, 1, 2, 5]), draw.choice([0, 1])
    of.step_s = draw.uniform(0.03, 0.6)
    of.workers = draw.choice([1, 1, 2])
    of.batch *= of.workers
    of.validates_s = draw.choice([0.0, 0.0, 12.0, 40.0]) * of.step_s
    form, patterns = FORMS[draw.choice([*FORMS])]
    style, ranks = draw.randrange(6), draw.choice([1, of.workers])
    now = 1000.0
    for epoch in range(of.epochs):
        for n in range(of.per_epoch):
            now += of.step_s * draw.uniform(0.95, 1.05)
            if n % of.every == 0:
                for rank in range(ranks):
                    text = form(of, epoch, n + of.first, f"{draw.uniform(0.1, 9):.4f}", style)
                    of.printed.append(Line(now + 0.002 * rank * of.step_s, text, rank))
        now += of.validates_s
    return of, patterns


def overtaken(of: Training) -> None:
    """Neighbours change places, as lines of a pipe with several writers do."""
    for _ in range(of.draw.randint(1, 4)):
        n = of.draw.randrange(len(of.printed) - 1)
        a, b = of.printed[n : n + 2]
        if b.time_s - a.time_s < 2 * of.every * of.step_s:
            of.printed[n : n + 2] = [Line(a.time_s, b.text, b.rank), Line(b.time_s, a.text, a.rank)]


def shuffled(of: Training) -> None:
    """No order is left: nothing can be read."""
    texts = [(line.text, line.rank) for line in of.printed]
    of.draw.shuffle(texts)
    of.printed = [Line(line.time_s, *text) for line, text in zip(of.printed, texts, strict=True)]


def lost(of: Training) -> None:
    """Some lines never arrive."""
    keep, of.whole = of.draw.choice([0.95, 0.8]), False
    inner = [line for line in of.printed[2:-2] if of.draw.random() < keep]
    of.printed = [*of.printed[:2], *inner, *of.printed[-2:]]


def cut(of: Training) -> None:
    """A piece of the log is missing, as of a console that scrolled away. Of a validation in it
    nobody could know.
    """
    if of.validates_s:
        return
    of.whole = False
    size = len(of.printed) // of.draw.choice([5, 10])
    begin = of.draw.randrange(2, len(of.printed) - size - 2)
    del of.printed[begin : begin + size]


def kept_back(of: Training) -> None:
    """A pipe keeps lines back until some are there, or the program ends."""
    size = of.draw.choice([2, 4, 9, 30])
    again_s = max(of.again_s, default=0.0)
    tries = [
        [line for line in of.printed if (line.time_s > again_s) == later] for later in (False, True)
    ]
    of.printed = []
    for lines_of in tries:
        for n, line in enumerate(lines_of):
            late = min((n // size + 1) * size - 1, len(lines_of) - 1)
            of.printed.append(line._replace(time_s=lines_of[late].time_s + 1e-5 * (n % size)))


def unlabelled(of: Training) -> None:
    """Nobody says which rank a line is of."""
    of.printed = [line._replace(rank=0) for line in of.printed]


def interrupted(of: Training) -> None:
    """It was killed, and started again from a checkpoint some steps before."""
    at = of.draw.randrange(len(of.printed) // 4, 3 * len(of.printed) // 4)
    back = max(at - of.draw.randint(0, len(of.printed) // 6), 1)
    killed_s, waits_s = of.printed[at - 1].time_s, of.draw.uniform(5, 60) * of.step_s
    begins_s = killed_s + waits_s
    behind_s = of.printed[back].time_s - of.printed[back - 1].time_s
    moved_s = begins_s + behind_s - of.printed[back].time_s
    again = [line._replace(time_s=line.time_s + moved_s) for line in of.printed[back:]]
    of.printed = [*of.printed[:at], *again]
    of.again_s = [killed_s + waits_s / 2]


TROUBLES: list[Callable[[Training], None]] = [
    overtaken,
    shuffled,
    lost,
    cut,
    kept_back,
    unlabelled,
    interrupted,
]


def read(folder: Path, of: Training, patterns: tuple[str, ...], **keys: int) -> Reading:
    run = spec(folder, of.workers, patterns=patterns, **keys)
    run = type(run)(**{**vars(run), "global_batch": of.batch})
    return lines.read(
        Output(run, folder, folder, of.printed, [line.text for line in of.printed], of.again_s)
    )


def off(of: Training, made: Reading) -> str | None:
    """Return what was read wrongly, and is neither near the truth nor marked as doubtful."""
    took_s = sum(row.took_s for row in made.rows if row.rank == 0)
    rate = sum(row.images for row in made.rows) / took_s if took_s else float("inf")
    steps = len({row.step for row in made.rows})
    if "gaps" in made.remarks:
        return None
    low = high = of.rate
    if (
        "bursts" in made.remarks and of.validates_s
    ):  # the rate is that of the whole, with validations in it
        low = 0.0
    if not (1 - FAR) * low <= rate <= (1 + FAR) * high:
        return f"{rate:.4g} per s for {of.rate:.4g}"
    if of.whole and abs(steps - of.last) > max(FAR * of.last, of.every + 1):
        return f"{steps} steps for {of.last}"
    return None


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(more, marks=pytest.mark.more) for more in range(4, 10))]
)
@pytest.mark.parametrize(
    "trouble", [None, *TROUBLES, "two of them"], ids=lambda one: getattr(one, "__name__", one)
)
def test_a_made_up_log_is_read_right_or_refused(
    tmp_path: Path, trouble: Callable[[Training], None] | str | None, seed: int
) -> None:
    """Of right patterns and of wrong ones. What nothing confirms is not called proved unless it is
    right.
    """
    of, right = trained(
        random.Random(f"{trouble if isinstance(trouble, str | None) else trouble.__name__} {seed}")
    )
    for one in (
        of.draw.sample(TROUBLES, 2) if isinstance(trouble, str) else [trouble] if trouble else []
    ):
        one(of)
    what = [line.text for line in of.printed[:4]]
    for patterns in [right, *((wrong,) for wrong in WRONG)]:
        try:
            made = read(tmp_path, of, patterns)
        except UnreadError:
            assert patterns != right or trouble is not None, what
            continue
        assert off(of, made) is None, (patterns, what)
        assert trouble is not shuffled
