"""One rank of a preflight: looks around on its node, meets the other ranks, and leaves
`rank-<n>.json`.

The launcher starts it under `__main__.py`. It only measures; `judge.py` says what is wrong.
"""

import faulthandler
import json
import math
import os
import platform
import random
import re
import shutil
import site
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ddlbench.core import notes, registry, site_torch
from ddlbench.core.files import force
from ddlbench.core.pages import in_memory
from ddlbench.data import datasets
from ddlbench.data.manifest import Manifest
from ddlbench.preflight import node_check
from ddlbench.settings import environment_modules
from ddlbench.train import counters, place

PROMISED = "promised.json"  # the settings of `promise.expected_settings`, left for all ranks
LOOK_S = 110  # a rank that takes longer, beside waiting for the others, hangs and is ended
READ_BYTES = 256 << 20  # read at most of each form, by one process per node
READ_S = 5.0
REDUCED_BYTES = 16 << 20
TRIPS = 101
BUSY_S = 1.0
CHUNK = 4 << 20
PACKAGES = ("torch", "numpy", "horovod", "nvidia")  # whose place is looked at


def own_facts(expected: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the facts that a rank sees on its own, before it meets the others."""
    threads, places = os.sched_getaffinity(0), {"results": folder, "data": Path(expected["data"])}
    # For frameworks that are not installed here, `lacks` gives the reason. The others may not
    # support what the study requests.
    members = [
        (registry.member("frameworks", name), options) for name, options in expected["frameworks"]
    ]
    members = [
        (member, options) for member, options in members if registry.importable(member.PACKAGE)
    ]
    return {
        "python": platform.python_version(),
        "versions": {name: registry.release(name) for name in expected["versions"]},
        "lacks": [package for package in expected["packages"] if not registry.importable(package)],
        "elsewhere": outside_environment(),
        "torch_from": site_torch.origin(),
        "modules": {name: os.environ.get(name, "") for name in environment_modules.KEPT},
        "cores": cores(threads),
        "hardware_threads": len(threads),
        "unable": [
            text
            for member, options in members
            if (text := member.lacks(expected["device"], options))
        ],
        "interfaces": [name for _, name in socket.if_nameindex()],
        "free_bytes": {
            name: shutil.disk_usage(place).free for name, place in places.items() if place.exists()
        },
    }


def cores(threads: Iterable[int], cpus: Path = Path("/sys/devices/system/cpu")) -> list[int]:
    """Return the cores that hardware threads belong to, each by the number of its first thread."""
    firsts = set()
    for thread in threads:
        try:  # "0,48" or "0-1"
            siblings = (cpus / f"cpu{thread}/topology/thread_siblings_list").read_text(
                encoding="ascii"
            )
            firsts.add(int(re.split("[,-]", siblings)[0]))
        except (OSError, ValueError):
            firsts.add(thread)
    return sorted(firsts)


def complaints(
    models: Sequence[Sequence[Any]], timeout_s: float, tell: Callable[[str], None]
) -> Iterator[str]:
    """Yield the errors of models that refuse the study's pictures; `tell` notes which model is
    tried. Other ranks wait `timeout_s` for this one: users' models have half of it.
    """
    from ddlbench.train import models as built
    from ddlbench.train import own_models

    for name, image_size, *source in models:
        tell(f"asking model {name} for pictures of {image_size} pixels")
        if source:
            _, dataset, manifest = source
            names = Manifest.read(Path(manifest).parent).classes if manifest else None
            classes = len(names) if names is not None else datasets.get(dataset).NUM_CLASSES
            refusal = own_models.complaint(name, classes, image_size, timeout_s / 2 / len(models))
        else:
            refusal = built.complaint(name, image_size)
        if refusal:
            yield refusal


def gpus(local_rank: int) -> dict[str, Any]:
    """Return the GPUs that this rank sees, and its own one, if there is one for it
    (`place.device_number`).
    """
    import torch

    count = torch.cuda.device_count()
    seen: dict[str, Any] = {
        "gpus": [torch.cuda.get_device_name(i) for i in range(count)],
        "gpu": None,
    }
    number = place.device_number(local_rank, count)
    if number is not None:
        gpu = torch.cuda.get_device_properties(number)
        seen["gpu"] = {"name": gpu.name, "memory_bytes": gpu.total_memory, "uuid": str(gpu.uuid)}
    return seen | {
        "cuda": torch.version.cuda,
        "nccl": nccl(torch.version.cuda) if torch.version.cuda else None,
    }


def time_all_reduce(device: str, group: Any = None) -> dict[str, Any]:
    """Time all-reduces of a tensor of ones: return the sum that came out, and the median time of
    five [s].
    """
    import torch
    import torch.distributed as dist

    times = []
    for _ in range(6):  # the first one also connects
        tensor = torch.ones(REDUCED_BYTES // 4, device=device)
        began = time.perf_counter()
        dist.all_reduce(tensor, group=group)
        value = float(tensor[-1])  # waits for the GPU
        times.append(time.perf_counter() - began)
    return {"sum": value, "bytes": REDUCED_BYTES, "seconds": statistics.median(times[1:])}


def clock_offset(trips: list[tuple[float, float, float]]) -> dict[str, Any]:
    """Estimate how far another clock is ahead of ours, from trips (sent by ours, seen by the other,
    answered by ours) [s]. A trip says: ahead by seen - (sent + answered) / 2, and no further off
    than half of the trip's length, because seen lies between the two (Cristian 1989,
    doi:10.1007/BF01784024). The trip with the median offset is taken.
    """
    offsets = sorted(
        (seen - (sent + answered) / 2, (answered - sent) / 2) for sent, seen, answered in trips
    )
    offset, uncertainty = offsets[len(offsets) // 2]
    return {"offset_s": offset, "uncertainty_s": uncertainty, "trips": len(trips)}


def clocks(
    rank: int, firsts: dict[str, int], now: Callable[[], float] = time.time
) -> dict[str, Any]:
    """Measure how far the clocks of other nodes are ahead of rank 0's, by host; return an empty
    dict on all other ranks. Every rank calls it. `firsts` has the first rank of each node, by host.
    """
    import torch
    import torch.distributed as dist

    ball = torch.zeros(1, dtype=torch.float64)
    if rank in firsts.values() and rank != 0:
        for _ in range(TRIPS):
            dist.recv(ball, 0)
            ball[0] = now()
            dist.send(ball, 0)
    offsets = {}
    if rank == 0:
        for host, other in firsts.items():
            trips = []
            for _ in range(TRIPS if other else 0):
                sent = now()
                dist.send(ball, other)
                dist.recv(ball, other)
                trips.append((sent, float(ball[0]), now()))
            if trips:
                offsets[host] = clock_offset(trips)
    return offsets


def read_rate(folder: Path) -> dict[str, Any]:
    """Measure how fast one process reads a part of a prepared form.

    Before the measurement, the system is requested to drop the part from its cache. `cached_share`
    is the share of the bytes that stayed in the cache in spite of this: 0 is a cold read, null is
    unknown.
    """
    manifest = Manifest.read(folder)
    data = manifest.data(folder)
    parts = [data / name for split in manifest.splits.values() for name in split.sha256]
    random.shuffle(parts)  # other files each time, so that no cache on the way has them
    files, size, cached, seconds = 0, 0, 0.0, 0.0
    for path in (file for part in parts for file in _files(part)):
        with path.open("rb", buffering=0) as file:
            force(file.fileno())  # what was just written cannot be forgotten
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            length = os.fstat(file.fileno()).st_size
            share = _cached(file.fileno(), length)
            began = time.perf_counter()
            while file.read(CHUNK):
                pass
            seconds += time.perf_counter() - began
        files, size, cached = (
            files + 1,
            size + length,
            cached + length * (math.nan if share is None else share),
        )
        if size >= READ_BYTES or seconds >= READ_S:
            break
    return {
        "folder": str(data),
        "files": files,
        "bytes": size,
        "seconds": seconds,
        "bytes_per_s": size / seconds if seconds else None,
        "cached_share": cached / size if size and not math.isnan(cached) else None,
    }


def _files(part: Path) -> list[Path]:
    """List the files of a part: a shard, or the files of a class folder, in which systems leave
    folders of their own.
    """
    return [part] if part.is_file() else sorted(path for path in part.iterdir() if path.is_file())


def _cached(file: int, length: int) -> float | None:
    """Return the share of a file's pages that are in memory, by mincore(2), which answers only
    those who may write to it.
    """
    if not length:
        return 0.0
    if not os.access(f"/proc/self/fd/{file}", os.W_OK) and os.fstat(file).st_uid != os.geteuid():
        return None
    try:
        there, pages = in_memory(file, length)
    except (OSError, ValueError):
        return None
    return there / pages


def meet(
    expected: dict[str, Any], who: place.Rank, facts: dict[str, Any], tell: Callable[[str], None]
) -> None:
    """Fill in the results that ranks get together. `tell` writes down what is tried next, in case
    it hangs.
    """
    import torch.distributed as dist

    tell("meeting the other ranks by Gloo")
    timeout = timedelta(
        seconds=expected["start_timeout_s"] + expected.get("node_check_timeout_s", 0)
    )
    dist.init_process_group("gloo", timeout=timeout)
    seen: list[Any] = [None] * who.world
    usable = expected["device"] == "cuda" and facts["gpu"] is not None
    dist.all_gather_object(seen, (socket.gethostname(), usable))
    hosts = [host for host, _ in seen]
    firsts = {host: hosts.index(host) for host in dict.fromkeys(hosts)}
    if who.rank in list(firsts.values())[:2]:  # two, in case one node cannot write
        facts["met"] = hosts
    tell("an all-reduce by Gloo")
    facts["all_reduce"] = {"gloo": time_all_reduce("cpu")}
    tell("comparing clocks")
    facts["clocks"] = clocks(who.rank, firsts)
    if all(cuda for _, cuda in seen):
        tell("an all-reduce by NCCL")
        place.take_device(who.local_rank)
        group = dist.new_group(backend="nccl", timeout=timeout)
        facts["all_reduce"]["nccl"] = time_all_reduce("cuda", group)
    if who.rank in firsts.values():  # the other ranks of its node wait
        tell("measuring the load of its node")
        facts["others_cores"] = busy_cores()
        tell("reading prepared data")
        facts["read"] = [read_rate(Path(manifest).parent) for manifest in expected["manifests"]]
    dist.barrier()
    dist.destroy_process_group()


def busy_cores(seconds: float = BUSY_S) -> float:
    """Measure the CPU cores that other processes keep busy on this node, while this one does
    nothing.
    """
    began, mine, of_node = time.monotonic(), counters.cpu_s(), counters.node_cpu_s()
    time.sleep(seconds)
    others_s = (counters.node_cpu_s() - of_node) - (counters.cpu_s() - mine)
    return max(0.0, others_s / (time.monotonic() - began))


def outside_environment(packages: Sequence[str] = PACKAGES) -> list[str]:
    """List packages that are imported from outside of this Python's environment, each with its
    folder. PYTHONPATH, set by an environment module or by the user, puts other packages first. The
    site's PyTorch is meant to be used (TORCH=site).
    """
    site_folders = [
        *site.getsitepackages(),
        *([site.getusersitepackages()] if site.ENABLE_USER_SITE else []),
    ]
    own_folders = [Path(place).resolve() for place in site_folders]
    site_packages = site_torch.folder()
    own_folders += [site_packages] if site_packages else []
    specs = ((package, find_spec(package)) for package in packages)
    # Several folders of a package in parts, none if it is not there.
    places_of = {package: spec.submodule_search_locations or () for package, spec in specs if spec}
    return [
        f"{package} would be imported from {found}, which is not this environment's"
        f" {own_folders[0]}"
        for package, folders in places_of.items()
        for found in folders
        if not any(Path(found).resolve().is_relative_to(place) for place in own_folders)
    ]


def nccl(cuda: str, maps: Path = Path("/proc/self/maps")) -> str | None:
    """Return what is wrong with the NCCL that this process has mapped, for torch built with this
    CUDA; None if nothing is. The wheels of NCCL for CUDA 12 and 13 write the same file: the one
    that was installed last is used.
    """
    name = f"nvidia-nccl-cu{cuda.partition('.')[0]}"
    lines = maps.read_text(encoding="utf-8", errors="replace").splitlines()
    mapped = sorted({line.split(maxsplit=5)[5] for line in lines if "/libnccl.so" in line})
    installed = dict(_libraries(name))
    if not mapped or not installed:  # torch has NCCL within itself, or it is no wheel's
        return None
    others = [path for path in mapped if Path(path).resolve() not in installed]
    if others:
        return f"NCCL in use is {', '.join(others)}, not that of package {name}"
    for path, size in installed.items():
        if size is not None and path.stat().st_size != size:
            cure = f"pip install --force-reinstall --no-deps {name}=={distribution(name).version}"
            return (
                f"{path} is not the file that {name} brought: another package has overwritten it;"
                f" {cure}"
            )
    return None


def _libraries(name: str) -> Iterator[tuple[Path, int | None]]:
    """Yield the NCCL libraries of an installed package: its files, and the sizes with which pip
    installed them.
    """
    try:
        files = distribution(name).files or []
    except PackageNotFoundError:
        return
    for file in files:
        path = Path(str(file.locate())).resolve()
        if file.name.startswith("libnccl.so") and path.exists():
            yield path, file.size


def main() -> None:
    """Run one rank of a preflight: `python -m ddlbench.preflight.scout <folder>`, started by a
    launcher.
    """
    folder = Path(sys.argv[1])
    expected = json.loads((folder / PROMISED).read_text(encoding="utf-8"))
    check_s = expected.get("node_check_timeout_s", 0)
    faulthandler.dump_traceback_later(LOOK_S + expected["start_timeout_s"] + check_s, exit=True)
    rank = place.rank_number()
    facts: dict[str, Any] = {
        "rank": rank,
        "world": None,
        "met": None,
        "read": [],
        "doing": "looking around",
    }
    local_rank = 0

    def tell(what: str) -> None:
        facts["doing"] = what
        notes.introduce(folder, rank, local_rank, facts)

    try:
        facts |= own_facts(expected, folder)
        tell("reading its rank number and host")
        who = place.own_rank(expected["workers"])
        rank, local_rank = who.rank, who.local_rank
        facts |= {"rank": rank, "world": who.world}
        if "node_check" in expected:
            facts["node_check"] = None  # the same keys in every rank
            if local_rank == 0:
                tell("checking its node")
                facts["node_check"] = node_check.failure(expected["node_check"], check_s, folder)
        own_models = expected["models"][
            rank :: who.world
        ]  # each takes a second or two, and ranks wait for each other
        if own_models and registry.importable("timm"):  # else training says so
            facts["unable"] = [
                *facts["unable"],
                *complaints(own_models, expected["start_timeout_s"], tell),
            ]
        if expected["device"] == "cuda":
            tell("looking for GPUs")
            facts |= gpus(local_rank)
        meet(expected, who, facts, tell)
    except Exception as error:
        facts["error"] = " ".join(f"{type(error).__name__}: {error}".split())
        tell(facts["doing"])
        raise
    facts["doing"] = None
    notes.introduce(folder, rank, local_rank, facts)


if __name__ == "__main__":
    main()
