"""Each loader against the ceiling, pictures that are there already: what share of it, and none above it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddlbench.commands.gpucheck import Row, judged
from ddlbench.commands.gpucheck._bench import RunFailedError, images_per_s, skipped
from ddlbench.core import registry

if TYPE_CHECKING:
    from ddlbench.commands.gpucheck._bench import Bench
    from ddlbench.core.spec import RunSpec

LIMIT_S = 240
MOST = 1.05  # of the ceiling: what two runs of one kind may differ by
LEAST = 0.02  # slower than that is no loader, but something that hangs


def runs(bench: Bench) -> dict[str, RunSpec]:
    """Each loader in each form that it reads, with small steps on a CPU."""
    batch = 20 if bench.tiny else 200
    made = {}
    for name in registry.members("loaders"):
        forms = registry.member("loaders", name).FORMS
        for form in forms or (None,):
            spec = bench.spec(loader=name, form=form if form in forms[1:] else None, global_batch=batch)
            made[f"{name}, {form}" if form else name] = spec
    return made


def check(bench: Bench) -> Iterator[Row]:
    """One row per loader and form; the ceiling first."""
    wanted = runs(bench)
    yield from skipped(bench, wanted)
    ceiling = None
    for what, spec in sorted(wanted.items(), key=lambda item: item[1].reads is not None):
        if bench.lacks(spec):
            continue
        try:
            rate = images_per_s(bench.train(spec, "loaders", data=bench.pictures(spec.reads or "raw")))
        except RunFailedError as error:
            yield Row(what, judged(False), str(error))
            continue
        ceiling = ceiling or rate
        share = rate / ceiling
        compared = f"{share:.0%} of the ceiling; expected: {LEAST:.0%} to {MOST:.0%}"
        yield Row(what, judged(LEAST <= share <= MOST), compared, rate, "images/s")
