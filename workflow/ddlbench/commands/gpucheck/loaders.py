"""Each loader against the ceiling, pictures that are there already: what share of it, and none above it."""

from collections.abc import Iterator

from ddlbench.commands.gpucheck import Row, judged
from ddlbench.commands.gpucheck._bench import Bench, each, images_per_s
from ddlbench.core import registry
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
    return dict(sorted(made.items(), key=lambda item: item[1].reads is not None))  # the ceiling first


def check(bench: Bench) -> Iterator[Row]:
    """One row per loader and form; the ceiling first."""
    ceiling = None

    def judge(what: str, spec: RunSpec) -> Row:
        nonlocal ceiling
        rate = images_per_s(bench.train(spec, "loaders", data=bench.pictures(spec.reads or "raw")))
        ceiling = ceiling or rate
        share = rate / ceiling
        compared = f"{share:.0%} of the ceiling; expected: {LEAST:.0%} to {MOST:.0%}"
        return Row(what, judged(LEAST <= share <= MOST), compared, rate, "images/s")

    yield from each(bench, runs(bench), judge)
