"""Compares what ranks saw on a machine with what its file promises. Pure: `scout.py` looks,
`__main__.py` acts.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ddlbench.core.formatting import count_of
from ddlbench.settings import environment_modules
from ddlbench.settings.machine import Machine
from ddlbench.slurm.sinfo import Node

NO_SPACE_BYTES, LITTLE_SPACE_BYTES = 100 << 20, 5 << 30
BUSY_CORES = 0.5  # that others keep busy; `busy-machine` of the audit says so of runs
CLOCK_S = 0.1


@dataclass(frozen=True)
class Problem:
    """A problem of the machine, in one line. Errors keep training from starting."""

    error: bool
    text: str

    def __str__(self) -> str:
        return f"{'error' if self.error else 'warning'}: {self.text}"


def judge(
    ranks: Sequence[Mapping[str, Any]], expected: Mapping[str, Any], allocated: Sequence[str] = ()
) -> list[Problem]:
    """Return the problems, errors first.

    `ranks` is what `scout.py` wrote for each rank that came so far. `allocated` are the nodes of the
    SLURM job. A problem of several ranks is reported once, with their nodes.
    """
    everyone = len(ranks) == expected["workers"]
    found = (
        (*wrong, facts["host"]) for facts in ranks for wrong in _of_rank(facts, expected, everyone)
    )
    problems = _once_each(found, len(ranks) if everyone else 0)
    problems += [Problem(error, what) for error, what in _of_all(ranks, expected, allocated)]
    return sorted(problems, key=lambda problem: not problem.error)


def judge_nodes(machine: Machine, nodes: Iterable[Node]) -> list[Problem]:
    """Return where the machine's file and SLURM disagree about a node.

    Timed runs take complete nodes, whatever the file says.
    """
    return _once_each(
        (False, text, node.name) for node in nodes for text in _of_node(node, machine)
    )


def _of_node(node: Node, machine: Machine) -> Iterable[str]:
    file, wanted = (
        f"config/machines/{machine.name}.yaml",
        machine.workers_per_node * machine.cores_per_worker,
    )
    product = (
        f"{file}: workers_per_node x cores_per_worker: {machine.workers_per_node} x"
        f" {machine.cores_per_worker}"
    )
    idle = "the others stay idle in timed runs, which take whole nodes"
    if wanted > node.cpus:
        more = (
            f"{product} is more than the {count_of(node.cpus, 'core')} that SLURM gives of a node"
        )
        yield f"{more}; runs that fill a node will be refused"
    elif node.cores and wanted < node.cores:
        yield f"{product} of {count_of(node.cores, 'core')}; {idle}"
    if machine.device == "cuda" and node.gpus > machine.workers_per_node:
        yield (
            f"{file}: workers_per_node: {machine.workers_per_node} of {count_of(node.gpus, 'GPU')};"
            f" {idle}"
        )


def _once_each(found: Iterable[tuple[bool, str, str]], all_ranks: int = 0) -> list[Problem]:
    """Return each problem of (is an error, what, host) once, with its hosts; one that all of
    `all_ranks` ranks have is on all nodes.
    """
    hosts_of: dict[tuple[bool, str], list[str]] = defaultdict(list)
    for error, what, host in found:
        hosts_of[error, what].append(host)
    problems = []
    for (error, what), hosts in hosts_of.items():
        names = sorted(set(hosts))
        everywhere = len(hosts) == all_ranks and len(names) > 1
        problems.append(
            Problem(
                error, what + (" (on all nodes)" if everywhere else f" (on {', '.join(names)})")
            )
        )
    return problems


def _of_rank(
    facts: Mapping[str, Any], expected: Mapping[str, Any], complete: bool
) -> Iterable[tuple[bool, str]]:
    """Yield (is an error, what) for each thing that is wrong on one rank; `everyone`: all ranks
    have reported.
    """
    file = f"config/machines/{expected['machine']}.yaml"
    if "cores" not in facts:  # it did not get as far as looking around
        yield True, facts.get("error") or "a rank ended before it could report"
        return
    wrong = environment_modules.complaint(
        expected["machine"], expected["modules"], facts["modules"]
    )
    if wrong:
        yield True, wrong
    if facts.get("node_check"):
        yield True, f"{file}: node_check: `{expected['node_check']}` {facts['node_check']}"
    for package in facts["lacks"]:
        yield True, f"Python package {package} is not installed ({expected['packages'][package]})"
    for complaint in (*facts["elsewhere"], *facts.get("unable", ())):
        yield True, complaint
    absent = list(_absent_interfaces(facts["interfaces"], expected["environment"]))
    if absent:
        there = ", ".join(facts["interfaces"])
        yield (
            True,
            (
                f"{file}: environment: {', '.join(absent)}: no such network interface; there are"
                f" {there}"
            ),
        )
    for place, free in facts["free_bytes"].items():
        if free < LITTLE_SPACE_BYTES:
            full = free < NO_SPACE_BYTES
            yield (
                full and place == "results",
                f"the disk of folder {place} is {'full' if full else 'nearly full'}",
            )
    if expected["manifests"] and "data" not in facts["free_bytes"]:
        yield True, f"{file}: data: folder {expected['data']} is not there"
    if "gpus" in facts and facts["gpu"] is None:
        cuda = "" if facts["cuda"] else "; this PyTorch was built without CUDA"
        yield (
            True,
            (
                f"rank {facts['local_rank']} of its node has no GPU of its own"
                f" ({len(facts['gpus'])} visible){cuda}"
            ),
        )
    elif (
        "gpus" in facts
        and expected["gpu_name"]
        and expected["gpu_name"] not in facts["gpu"]["name"]
    ):
        yield (
            True,
            (
                f"{file}: gpu_name: {expected['gpu_name']} was expected, the GPU is"
                f" {facts['gpu']['name']}"
            ),
        )
    if facts.get("others_cores", 0.0) > BUSY_CORES:
        busy = (
            f"other processes keep {facts['others_cores']:.1f} cores of this node busy: give timed"
            " runs a node of their own"
        )
        yield False, busy
    if facts.get("nccl"):
        yield False, facts["nccl"]
    if len(facts["cores"]) < expected["cores_per_worker"]:
        has = f"a rank may use {count_of(len(facts['cores']), 'core')}"
        if facts.get("hardware_threads", 0) > len(facts["cores"]):
            has += (
                f" ({facts['hardware_threads']} hardware threads); SLURM gives whole cores with"
                " slurm_flags:"
            )
            has += " [--hint=nomultithread]"
        yield (
            False,
            f"{file}: cores_per_worker: {expected['cores_per_worker']} expected, {has}",
        )
    if facts.get("error") or (
        facts["doing"] and complete
    ):  # else it waited for those that did not come
        yield True, _explain(facts, expected)


def _of_all(
    ranks: Sequence[Mapping[str, Any]], expected: Mapping[str, Any], allocated: Sequence[str]
) -> Iterable[tuple[bool, str]]:
    """Yield (is an error, what) for each thing that is wrong between ranks."""
    numbers = {facts["rank"] for facts in ranks}
    silent = [rank for rank in range(expected["workers"]) if rank not in numbers]
    if silent:
        met = next((facts["met"] for facts in ranks if facts["met"]), None)
        why = "they did not start, or do not see this folder"
        hosts = {*allocated} - {
            facts["host"].partition(".")[0] for facts in ranks
        }  # SLURM's names are short
        if met and len(met) > max(silent):
            hosts, why = {met[rank] for rank in silent}, "they do not see this folder"
        where = f" (on {', '.join(sorted(hosts))})" if hosts else ""
        advice = "put the project where all nodes see it, or name such nodes in exclude_nodes"
        yield True, f"no report from ranks {', '.join(map(str, silent))}{where}: {why}; {advice}"
    looked = [facts for facts in ranks if "cores" in facts]
    versions: dict[str, Any] = {
        name: lambda facts, name=name: facts["versions"][name] for name in expected["versions"]
    }
    for package, version in (versions | {"Python": lambda facts: facts["python"]}).items():
        if text := _differ(looked, version):
            yield True, f"nodes have different versions of {package}: {text}"
    if text := _differ(looked, lambda facts: facts.get("torch_from")):
        yield True, f"nodes take PyTorch from different places: {text}"
    if text := _differ(
        [facts for facts in ranks if facts.get("gpu")], lambda facts: facts["gpu"]["name"]
    ):
        yield False, f"ranks have different GPUs, and each step waits for the slowest: {text}"
    for host in sorted({facts["host"] for facts in looked}):
        there = [facts for facts in looked if facts["host"] == host]
        cores = {core for facts in there for core in facts["cores"]}
        wanted = len(there) * expected["cores_per_worker"]
        if len(cores) < wanted and all(
            len(facts["cores"]) >= expected["cores_per_worker"] for facts in there
        ):
            yield (
                False,
                (
                    f"{len(there)} ranks on {host} have {count_of(len(cores), 'core')}; expected"
                    f" {wanted}"
                ),
            )
        uuids = [facts["gpu"]["uuid"] for facts in there if facts.get("gpu")]
        if len(set(uuids)) < len(uuids):
            yield True, f"{len(uuids)} ranks on {host} share {count_of(len(set(uuids)), 'GPU')}"
    first = next((facts for facts in ranks if facts["rank"] == 0), {})
    for host, clock in (first.get("clocks") or {}).items():
        if abs(clock["offset_s"]) - clock["uncertainty_s"] > CLOCK_S:
            off = f"{clock['offset_s']:+.3f} +- {clock['uncertainty_s']:.3f} s"
            yield False, f"the clock of {host} differs from that of {first['host']} by {off}"
    for name, done in (first.get("all_reduce") or {}).items():
        if done["sum"] != expected["workers"]:
            yield (
                True,
                f"an all-reduce of ones over {expected['workers']} ranks by {name} gave"
                f" {done['sum']}",
            )
    nodes = len({facts["host"] for facts in ranks})
    wanted = (
        1 if expected["launcher"] == "namespaces" else expected["nodes"]
    )  # nodes of one host, by its name
    if not silent and nodes != wanted:
        yield True, f"ranks run on {count_of(nodes, 'node')}; expected {wanted}"


def _explain(facts: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Explain why a rank did not come to its end."""
    error = facts.get("error") or "it did not answer, and was ended"
    # A clear message of our own is enough; one of a library needs an introduction.
    if error.startswith("WorldError: "):
        return error.removeprefix("WorldError: ")
    if not (facts["doing"] or "").startswith(("meeting", "an all-reduce")):
        return f"{facts['doing']}: {error}"
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    set_to = ", ".join(f"{name}={expected['environment'].get(name, '(not set)')}" for name in names)
    where = f"config/machines/{expected['machine']}.yaml: environment: {set_to}, host_suffix: "
    hint = (
        f"{where}{json.dumps(expected['host_suffix'])}"
        if expected["nodes"] > 1
        else "all ranks are on this node"
    )
    return f"ranks do not reach each other ({facts['doing']}; {hint}): {error[:300]}"


def _absent_interfaces(interfaces: Sequence[str], environment: Mapping[str, str]) -> Iterable[str]:
    """Yield the variables whose network interfaces all do not exist.

    Gloo's value is names, separated by commas. NCCL's is beginnings of names; after = complete
    names; after ^ those not to use:
    https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-socket-ifname
    """
    gloo = environment.get("GLOO_SOCKET_IFNAME")
    if gloo and not set(gloo.split(",")) <= set(interfaces):
        yield "GLOO_SOCKET_IFNAME"
    nccl = environment.get("NCCL_SOCKET_IFNAME", "^")
    names = nccl.removeprefix("=").split(",")
    fits = (
        (lambda name: name in names)
        if nccl.startswith("=")
        else (lambda name: name.startswith(tuple(names)))
    )
    if not nccl.startswith("^") and not any(map(fits, interfaces)):
        yield "NCCL_SOCKET_IFNAME"


def _differ(ranks: Sequence[Mapping[str, Any]], value_of: Any) -> str | None:
    """Describe how ranks differ: '2.13.0 on node1, node2; 2.12.0 on node3'; return None if they
    agree.
    """
    hosts: dict[str, set[str]] = defaultdict(set)
    for facts in ranks:
        hosts[str(value_of(facts))].add(facts["host"])
    if len(hosts) < 2:
        return None
    return "; ".join(
        f"{value} on {', '.join(sorted(names))}" for value, names in sorted(hosts.items())
    )
