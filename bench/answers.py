"""Are the answers of the first screen right? Made-up studies, whose truth is known, answered as the
page does.

    python bench/answers.py [--trials N] [--seed N]

A study has sides (3, 10 or 14 frameworks: 3, 45 or 91 pairs), settings and repeats. A run's
logarithm of its rate is that of its side, with a level of its setting and noise of its own:
`NOISES`.

    false       studies of equal sides whose answer is sure: at most 5 %; `one run`: those of which
                one run per setting
                says more than chance would
    told        the side that is 1.06 times as fast in 43 settings, or 1.25 times in 10, one run
                each at 2 % noise, is
                taken, and said so as far as one run goes: at least 95 %
    turns       a side that leads up to 64 workers and trails beyond is said to turn round there, or
                at its neighbours:
                at least 90 % (with leads of 6 %, of three runs each); and how often one that leads
                everywhere is: 5 %
    coverage    how often the shown 95 % interval of a ratio holds the true one, with the median width: 93 to 97 %
    settled     how many of the studies that ask for more repeats are sure with these: at least 75 % of all

It exits with 1 beyond a limit. Noise with two speeds or outliers is no normal one: there coverage
is printed without a limit, and only `false` is held. With three sides and fewer than three settings
the larger of two spreads counts, so that intervals may hold up to 98.5 %.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from ddlbench.analysis import over_settings
from ddlbench.analysis.over_settings import Block
from ddlbench.answers import Candidate, Certainty
from ddlbench.answers.questions import _sides
from numpy.random import Generator
from numpy.typing import NDArray

Floats = NDArray[np.float64]
FALSE, TOLD, TURNS, SETTLED = 0.05, 0.95, 0.90, 0.75
HOLDS = (0.93, 0.97)
SIDES = (3, 10, 14)


@dataclass(frozen=True)
class Noise:
    """How runs of equal settings differ: `draw` gives logarithms of this shape; `normal`: Student's
    t is exact.
    """

    name: str
    draw: Callable[[Generator, tuple[int, ...]], Floats]
    normal: bool = True
    drift: float = 0.0


def of(spread: float) -> Callable[[Generator, tuple[int, ...]], Floats]:
    """Log-normal noise."""
    return lambda rng, shape: rng.normal(0, spread, shape)


NOISES = (
    Noise("1 %", of(0.01)),
    Noise("3 %", of(0.03)),
    Noise("10 %", of(0.10)),
    Noise("1 %, drift of 5 %", of(0.01), drift=0.05),
    Noise(
        "two speeds, 3 % apart",
        lambda r, n: 0.03 * (r.random(n) < 0.5) + r.normal(0, 0.0003, n),
        False,
    ),
    Noise(
        "1 %, one of 20 runs 30 % slower",
        lambda r, n: r.normal(0, 0.01, n) - 0.36 * (r.random(n) < 0.05),
        False,
    ),
)


def study(
    rng: Generator,
    noise: Noise,
    sides: Sequence[Candidate],
    settings: int,
    repeats: int,
    lead: Floats | float = 0.0,
) -> list[Block]:
    """Blocks of a study in which the first side is `lead` (a logarithm, by setting) above the
    others.
    """
    made = noise.draw(rng, (settings, len(sides), repeats))
    made[:, 0] += np.broadcast_to(np.asarray(lead), (settings,))[:, None]
    made -= noise.drift * np.arange(repeats)[None, None, :] / max(1, repeats - 1)
    made += rng.normal(0, 1, (settings, 1, 1))
    return [
        Block(
            k,
            {side: dict(enumerate(made[k, n].tolist())) for n, side in enumerate(sides)},
            float(2**k),
        )
        for k in range(settings)
    ]


def named(count: int) -> list[Candidate]:
    return [Candidate(framework=f"f{n}") for n in range(count)]


def says(blocks: Sequence[Block], sides: Sequence[Candidate]) -> tuple[Candidate, Certainty, bool]:
    """What the page takes, how surely, and whether some verdict is not `cannot tell`."""
    one_of = len(sides) * (len(sides) - 1) / 2
    _, taken, overs = _sides.judge(blocks, sides, one_of)
    return taken, _sides.certainty(overs.values()), any(over.verdict for over in overs.values())


def false(trials: int, rng: Generator) -> Iterator[tuple[str, float, bool]]:
    """Equal sides: how often something is sure."""
    for noise in NOISES:
        for count in SIDES:
            for settings in (1, 2, 3, 10):
                for repeats in (1, 2, 3, 5):
                    tries = max(
                        100, trials // (1 if count == 3 else 10) // (3 if settings == 10 else 1)
                    )
                    sides = named(count)
                    found = [
                        says(study(rng, noise, sides, settings, repeats), sides)
                        for _ in range(tries)
                    ]
                    share = sum(verdict for _, _, verdict in found) / tries
                    # The upper end of what chance makes of 5 % in so many trials.
                    limit = FALSE + 2 * (FALSE * (1 - FALSE) / tries) ** 0.5
                    yield f"{noise.name} | {count} | {settings} | {repeats}", share, share <= limit


def told(trials: int, rng: Generator) -> Iterator[tuple[str, float, bool]]:
    """How often a true lead is taken and told."""
    for ratio, settings, repeats in (
        (1.06, 43, 1),
        (1.25, 10, 1),
        (1.06, 10, 3),
        (1.06, 1, 3),
        (1.25, 1, 2),
    ):
        sides, right = named(3), 0
        for _ in range(trials // 4):
            taken, certainty, _ = says(
                study(rng, Noise("", of(0.02)), sides, settings, repeats, np.log(ratio)), sides
            )
            right += taken == sides[0] and certainty in (Certainty.SURE, Certainty.FEW)
        share = right / (trials // 4)
        yield f"{ratio} | {settings} | {repeats}", share, share >= TOLD or repeats > 1


def turns(trials: int, rng: Generator) -> Iterator[tuple[str, float, bool]]:
    """How often a lead that turns round beyond 64 of 4 to 1024 workers is said to; and one that
    does not.
    """
    sides, sizes = named(3), 2 ** np.arange(2, 11)
    for below, above in ((1.1, 0.9), (1.25, 0.8), (1.06, 0.94), (1.1, 1.1)):
        for repeats in (1, 3):
            lead, right = np.log(np.where(sizes <= 64, below, above)), 0
            for _ in range(trials // 4):
                made = study(rng, Noise("", of(0.02)), sides, len(sizes), repeats, lead)
                blocks = [
                    Block(block.place, block.cells, float(n))
                    for block, n in zip(made, sizes, strict=True)
                ]
                turn = over_settings.turn(blocks, sides[0], sides[1], 3)
                right += turn is not None and (32 <= turn.at <= 128 or below == above)
            share = right / (trials // 4)
            weak = below < 1.1 and repeats == 1
            kept = share <= FALSE if below == above else weak or share >= TURNS
            yield f"{below} up to 64, {above} beyond | {repeats}", share, kept


def coverage(trials: int, rng: Generator) -> Iterator[tuple[str, float, float, bool]]:
    """How often the interval of a ratio holds the true one, and its median width as a factor."""
    for noise in NOISES:
        for count in (2, 3):
            for settings, repeats in (
                (1, 2),
                (1, 3),
                (1, 5),
                (2, 2),
                (2, 3),
                (3, 1),
                (3, 3),
                (10, 1),
                (10, 3),
            ):
                sides, held, widths = named(count), 0, []
                for _ in range(trials):
                    seen = over_settings.compare(
                        study(rng, noise, sides, settings, repeats, 0.05), sides[0], sides[1]
                    )
                    assert seen.low is not None and seen.high is not None
                    held += seen.low <= 0.05 <= seen.high
                    widths.append(seen.high - seen.low)
                share = held / trials
                most = HOLDS[1] if count == 2 or settings > 2 else 0.985
                chance = 2 * (0.05 * 0.95 / trials) ** 0.5  # of so many trials
                kept = HOLDS[0] - chance <= share <= most + chance or not noise.normal
                yield (
                    f"{noise.name} | {count} | {settings} | {repeats}",
                    share,
                    float(np.exp(median(widths))),
                    kept,
                )


def settled(trials: int, rng: Generator) -> Iterator[tuple[str, float, bool]]:
    """How many of the studies that are not sure are, with the advised number of repeats; and of how
    many that is.
    """
    sides, noise, most = named(3), Noise("", of(0.02)), 60
    all_asked = all_enough = 0
    for ratio in (1.02, 1.03, 1.05):
        for settings in (1, 3):
            asked = enough = 0
            for _ in range(trials // 2):
                blocks = study(rng, noise, sides, settings, 3 + most, np.log(ratio))
                more = over_settings.more_pairs(
                    over_settings.compare(cut(blocks, 3), sides[0], sides[1], 3), 3
                )
                if (
                    over_settings.compare(cut(blocks, 3), sides[0], sides[1], 3).verdict
                    or more is None
                    or more > most
                ):
                    continue
                asked += 1
                enough += (
                    over_settings.compare(cut(blocks, 3 + more), sides[0], sides[1], 3).verdict > 0
                )
            yield (
                f"{ratio} | {settings} | {asked / (trials // 2):.0%}",
                enough / max(1, asked),
                True,
            )
            all_asked, all_enough = all_asked + asked, all_enough + enough
    share = all_enough / max(1, all_asked)
    yield "all | | ", share, share >= SETTLED


def cut(blocks: Sequence[Block], repeats: int) -> list[Block]:
    """The first repeats of each block."""
    return [
        Block(
            block.place,
            {
                side: {n: v for n, v in runs.items() if n < repeats}
                for side, runs in block.cells.items()
            },
        )
        for block in blocks
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rng, beyond = np.random.default_rng(given.seed), []
    parts = {
        false: "| noise | sides | settings | repeats | sure, though equal |",
        told: "| true ratio | settings | repeats | told |",
        turns: "| lead | repeats | said to turn |",
        coverage: "| noise | sides | settings | repeats | held | median width |",
        settled: "| true ratio | settings | asked for more | settled |",
    }
    for part, head in parts.items():
        print(head, "|" + "---|" * (head.count("|") - 1), sep="\n")
        for name, share, *width, kept in part(given.trials, rng):  # type: ignore[operator]
            shown = "".join(f" {value:.3f} |" for value in width)
            print(f"| {name} | {share:.1%} |{shown}", flush=True)
            beyond += [] if kept else [f"{part.__name__}: {name}: {share:.1%}"]
        print()
    for said in beyond:
        print(f"beyond the limits: {said}", file=sys.stderr)
    sys.exit(1 if beyond else 0)


if __name__ == "__main__":
    main()
