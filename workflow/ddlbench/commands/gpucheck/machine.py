"""What is here: the device, and what the check needs; it installs nothing."""

from collections.abc import Iterator

from ddlbench.commands.gpucheck import MEASURED, PASS, SKIPPED, Outcome, judged
from ddlbench.commands.gpucheck._bench import Bench
from ddlbench.core import registry

LIMIT_S = 60


def check(bench: Bench) -> Iterator[Outcome]:
    """The device, versions, and one row for each framework and loader."""
    import torch

    if bench.device == "cuda":
        there = torch.cuda.is_available()
        name = torch.cuda.get_device_name() if there else "no GPU: torch.cuda.is_available() is false"
        yield Outcome("GPU", judged(there), name)
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if torch.version.cuda else "none"
    yield Outcome("torch", MEASURED, f"{torch.__version__}, CUDA {torch.version.cuda}, NCCL {nccl}")
    for room in ("frameworks", "loaders"):
        for name in registry.members(room):
            member = registry.member(room, name)
            place = f"{room[:-1]} {name}"
            if member.PACKAGE is None or registry.importable(member.PACKAGE):
                yield Outcome(place, PASS, _version(member.DISTRIBUTION))
            else:
                yield Outcome(place, SKIPPED, f"no Python package {member.PACKAGE}; {member.INSTALL}")
    if bench.device == "cuda" and registry.importable("horovod"):
        import horovod.torch as hvd

        yield Outcome("Horovod with NCCL", judged(bool(hvd.nccl_built())), "must be: else it reduces in host memory")


def _version(distribution: str | None) -> str:
    release = registry.release(distribution) if distribution else None
    named = f"{distribution} {release}" if release else f"{distribution}, of unknown version"
    return named if distribution else "part of ddlbench"
