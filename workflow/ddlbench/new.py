"""A machine file or a study to begin with: `python -m ddlbench new machine NAME`, `... new study NAME`.

The machine file has what SLURM and the network say on a login node, and `SET` where only a person knows. The study is
made from three answers. Nothing that exists is written over.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from ddlbench import registry
from ddlbench.files import write_text
from ddlbench.settings.config import NAME, NAME_IN_WORDS, ConfigError
from ddlbench.settings.machine import load_machine
from ddlbench.settings.study import load_study

# What is asked, and what counts where nobody can be asked.
QUESTIONS = {
    "model": ("model (lenet, resnet8_half, or a name of timm's) [resnet8_half]", "resnet8_half"),
    "frameworks": (f"frameworks, of {', '.join(registry.members('frameworks'))} [ddp]", "ddp"),
    "workers": ("workers, such as 1,2,4 [1,2]", "1,2"),
}


def machine(name: str, config: Path) -> Path:
    """Write config/machines/<name>.yaml from what SLURM says here. Raises ConfigError, of one line."""
    path = _free(config / "machines" / f"{name}.yaml", name)
    asked = ["sinfo", "--noheader", "--exact", "--format=%R|%D|%l|%c|%G"]
    rows = [line.split("|") for line in _ask(asked).splitlines() if line.count("|") == 4]
    # Queues that give GPUs come first, large ones before small ones.
    rows.sort(key=lambda row: (_gpus(row[4]) == 0, -int(row[1])))
    if not rows:
        raise ConfigError("sinfo names no partition here: ask on a login node of the cluster")
    largest = rows[0]
    gpus, cores = _gpus(largest[4]), int(re.sub(r"\D", "", largest[3]) or 1)
    workers = gpus or cores
    kind = re.search(r"gpu:([A-Za-z][^:(]*):", largest[4])
    partitions = [
        f"  - {{name: {row[0]}, max_nodes: {int(row[1])}, max_minutes: {_minutes(row[2])}}}"
        for row in rows
        if (_gpus(row[4]) > 0) == (gpus > 0)
    ]
    shares = max(1, cores // workers)
    text = f"""\
# Made from what sinfo and ip said on a login node. SET marks what they do not know; config/README.md explains all.
launcher: slurm
device: {"cuda" if gpus else "cpu"}
device_name: {kind[1] if kind else "GPU" if gpus else "CPU core"}   # SET: what axes and texts call a worker
gpu_name: null              # SET: part of what `nvidia-smi -L` calls a GPU; the preflight refuses another kind

nodes: {int(largest[1])}                    # SET: the most nodes that one run may use
workers_per_node: {workers}         # {f"GPUs of a node: {largest[4]}" if gpus else "cores of a node, by sinfo"}
cores_per_worker: {shares}         # cores of a node, by sinfo, over workers
loader_threads: {shares}           # SET: at most cores_per_worker
memory_mb_per_worker: null  # SET if jobs must ask for memory: scontrol show config | grep DefMem

data: ${{SCRATCH:-results}}/ddlbench  # SET: a file system that all nodes see and that is fast

partitions:                 # by sinfo, those with most nodes first; SET the order to your liking
{chr(10).join(partitions)}

modules: []                 # SET if the software comes from modules, in the order of loading

environment: {{}}             # SET on more than one node: the interface that ranks meet on. This login node has:
{_interfaces()}
images_per_s: {{}}            # SET when you have measured: then the queue gets a limit near the run's length
price_per_gpu_hour: null    # SET for the plan, as far as you know it, with its currency
currency: null
"""
    return _checked(path, text, lambda: load_machine(name, path.parent))


def _interfaces() -> str:
    """The network interfaces of this host, as comments; those that are up, without the loopback."""
    try:
        rows = [line.split() for line in _ask(["ip", "-brief", "address"]).splitlines()]
    except ConfigError:
        return "#  (ip is not installed here)"
    up = [row[0].partition("@")[0] for row in rows if len(row) > 2 and row[0] != "lo" and row[1] == "UP"]
    return "\n".join(f"#  NCCL_SOCKET_IFNAME: {name}    # and GLOO_SOCKET_IFNAME" for name in up) or "#  (none)"


def _gpus(gres: str) -> int:
    """GPUs of a node, by SLURM's words for its generic resources: `gpu:a100:4(S:0-1)` -> 4."""
    return sum(int(n) for n in re.findall(r"\bgpu(?::[A-Za-z][^:,(]*)?:(\d+)", gres))


def _minutes(limit: str) -> int:
    """SLURM's time, `1-00:00:00` or `30:00`, in minutes; a year for none."""
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", limit)
    if not found:
        return 365 * 24 * 60
    days, hours, minutes, _ = (int(part or 0) for part in found.groups())
    return max(1, (days * 24 + hours) * 60 + minutes)


def _ask(command: Sequence[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    except FileNotFoundError:
        raise ConfigError(
            f"{command[0]} is not installed here: ask on a login node of the cluster; for a machine without a queue "
            "copy config/machines/workstation.yaml"
        ) from None
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(f"{command[0]} does not answer, try again later: {error}") from None


def study(name: str, config: Path, model: str, frameworks: str, workers: str) -> Path:
    """Write config/studies/<name>.yaml from three answers; an empty one is QUESTIONS' own. Raises ConfigError."""
    path = _free(config / "studies" / f"{name}.yaml", name)
    said = {"model": model, "frameworks": frameworks, "workers": workers}
    lists = {
        what: ", ".join(filter(None, re.split(r"[\s,]+", text or QUESTIONS[what][1]))) for what, text in said.items()
    }
    for what, text in lists.items():
        if not re.fullmatch(r"[\w.,\- ]+", text):
            raise ConfigError(f"{what}: {text!r}; allowed: names or numbers, separated by commas")
    text = f"""\
# A study is what is compared with what; config/README.md explains every key.
title: "{name}: how does {lists["model"]} scale?"
dataset: mnist5k            # 5000 digits that need no download; docs/data.md has others
recipe: demo-resnet         # config/recipes: everything that decides accuracy
models: [{lists["model"]}]
schedules: [step]
epochs: 2
repeats: 2                  # two give an interval, three a useful one

runs:
  scaling:                  # each combination is one run; more blocks may follow
    frameworks: [{lists["frameworks"]}]
    loaders: [native]
    workers: [{lists["workers"]}]
    batch_per_worker: [64]

figures:
  throughput: {{plot: throughput, runs: [scaling], title: Throughput}}
  efficiency: {{plot: efficiency, runs: [scaling], title: Parallel efficiency}}
  step-times: {{plot: step-times, runs: [scaling], title: Where a step's time goes}}
"""
    return _checked(path, text, lambda: load_study(name, path.parent))


def _free(path: Path, name: str) -> Path:
    if not NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is no name; allowed: {NAME_IN_WORDS}")
    if not path.parent.is_dir():
        raise ConfigError(f"{path.parent} is not here: call this in the project's folder")
    if path.exists():
        raise ConfigError(f"{path} is there already; give another name")
    return path


def _checked(path: Path, text: str, load: Callable[[], object]) -> Path:
    """Write the file, and take it away again if it is not one that can be loaded."""
    write_text(path, text)
    try:
        load()
    except ConfigError:
        path.unlink()
        raise
    return path
