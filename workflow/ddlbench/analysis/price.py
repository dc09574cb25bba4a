"""What compute time costs in money and energy. Plan, budget, tables, answers and predictions all
ask here.

    price = hours x workers that nobody else can use meanwhile x price of a worker hour
    energy = hours x power of the run's nodes, measured where it was, x PUE

Hours of workers (`gpu_hours`, `worker_hours`) are those of a run's own workers everywhere; only the
price, and a budget that a centre gives, count the others of its nodes too. Pure; without pandas,
because Snakemake's own process asks too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, linear_regression, median

from ddlbench.settings.machine import Machine


@dataclass(frozen=True)
class Tariff:
    """The prices and energy factors in a machine's file; None where it says nothing.

    `whole_nodes`: its centre bills nodes as a whole, also to jobs that could share them.
    """

    price_per_worker_hour: float | None = None
    currency: str | None = None
    workers_per_node: int = 1
    whole_nodes: bool = False
    pue: float | None = None

    def workers_blocked(self, workers: int, nodes: int, timed: bool = True) -> int:
        """Return how many workers nobody else can use while a job runs: its own, or all of its
        nodes' if it is timed or nodes are billed whole.
        """
        if timed or self.whole_nodes:
            return max(workers, nodes * self.workers_per_node)
        return workers

    def price(self, hours: float | None, blocked: int) -> float | None:
        """Return the price of so many hours of so many blocked workers; None if the hours or the
        price are unknown.
        """
        if hours is None or self.price_per_worker_hour is None:
            return None
        return hours * blocked * self.price_per_worker_hour

    def energy_kwh(self, energy_j: float | None) -> float | None:
        """Return the energy of the site [kWh] for that of its computers [J]; the same where the PUE
        is unknown.
        """
        return None if energy_j is None else energy_j / 3.6e6 * (self.pue or 1.0)


FREE = Tariff()  # of a machine without these keys in its file


def tariff(machine: Machine) -> Tariff:
    """Return the tariff of a machine."""
    return Tariff(
        machine.price_per_gpu_hour,
        machine.currency,
        machine.workers_per_node,
        machine.cores_per_node_billed is not None,
        machine.pue,
    )


@dataclass(frozen=True)
class Draw:
    """The mean power of a run while it trained [W], all its nodes together.

    `devices_w`: its GPUs alone, None where no counter separates them from the rest of their nodes.
    """

    workers: int
    nodes: int
    watts: float
    devices_w: float | None = None


def power_w(
    draws: Sequence[Draw],
    workers: int,
    nodes: int,
    design: tuple[float | None, float | None] = (None, None),
) -> float | None:
    """Return the power of a run of so many workers on so many nodes [W], from what runs like it
    drew; None without any.

    Runs of the same size are taken as they are; else runs with as many workers on a node, node by
    node; else the power of a node apart from that of its workers: by a line through what nodes drew
    with several numbers of workers. With one number only, workers draw what their GPUs did, or the
    part that the machine's file gives them (`design`: power of a worker and of the rest of a node),
    or all of it.
    """
    own = [draw.watts for draw in draws if (draw.workers, draw.nodes) == (workers, nodes)]
    if own:
        return median(own)
    by_count: dict[float, list[Draw]] = {}
    for draw in draws:
        by_count.setdefault(draw.workers / draw.nodes, []).append(draw)
    if not by_count:
        return None
    node_w = {
        count: median(draw.watts / draw.nodes for draw in same)
        for count, same in sorted(by_count.items())
    }
    wanted = workers / nodes
    if wanted in node_w:
        return nodes * node_w[wanted]
    if len(node_w) > 1:
        return nodes * _on_line(node_w, wanted)
    ((count, watts),) = node_w.items()
    worker_w = _of_workers(by_count[count], watts, count, design) / count
    return nodes * (watts - count * worker_w + wanted * worker_w)


def _on_line(node_w: Mapping[float, float], count: float) -> float:
    """Return the power of a node with so many workers by a line, on which neither node nor worker
    draws less than 0.
    """
    slope, rest = linear_regression([*node_w], [*node_w.values()])
    if slope < 0:
        return fmean(node_w.values())
    if rest < 0:
        slope, rest = linear_regression([*node_w], [*node_w.values()], proportional=True)
    return rest + slope * count


def _of_workers(
    draws: Sequence[Draw], watts: float, count: float, design: tuple[float | None, float | None]
) -> float:
    """Return how much of a node's power its workers draw, where runs have one number of workers on
    a node.
    """
    devices = [draw.devices_w / draw.nodes for draw in draws if draw.devices_w is not None]
    if devices:
        return min(watts, median(devices))
    worker_w, rest_w = design
    if worker_w is None or rest_w is None:
        return watts
    return watts * count * worker_w / (count * worker_w + rest_w)
