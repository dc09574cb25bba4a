"""What compute time costs in money and energy. Plan, budget, tables, answers and predictions all ask here.

    price = hours x workers that nobody else can use meanwhile x price of a worker hour

Hours of workers (`gpu_hours`, `worker_hours`) are those of a run's own workers everywhere; only the price, and a budget
that a centre gives, count the others of its nodes too. Pure; without pandas, because Snakemake's own process asks too.
"""

from dataclasses import dataclass

from ddlbench.settings.machine import Machine


@dataclass(frozen=True)
class Tariff:
    """What a machine's file says of money and energy; None where it says nothing. `whole_nodes`: its centre bills nodes
    as a whole, also to jobs that could share them."""

    price_per_worker_hour: float | None = None
    currency: str | None = None
    workers_per_node: int = 1
    whole_nodes: bool = False
    pue: float | None = None

    def workers_blocked(self, workers: int, nodes: int, timed: bool = True) -> int:
        """Return how many workers nobody else can use while a job runs: its own, or all of its nodes' if it is timed or
        nodes are billed whole."""
        if timed or self.whole_nodes:
            return max(workers, nodes * self.workers_per_node)
        return workers

    def price(self, hours: float | None, blocked: int) -> float | None:
        """Return the price of so many hours of so many blocked workers; None if the hours or the price are unknown."""
        if hours is None or self.price_per_worker_hour is None:
            return None
        return hours * blocked * self.price_per_worker_hour

    def energy_kwh(self, energy_j: float | None) -> float | None:
        """Return the energy of the site [kWh] for that of its computers [J]; the same where the PUE is unknown."""
        return None if energy_j is None else energy_j / 3.6e6 * (self.pue or 1.0)


FREE = Tariff()  # of a machine whose file says nothing


def tariff(machine: Machine) -> Tariff:
    """Return the tariff of a machine."""
    return Tariff(
        machine.price_per_gpu_hour,
        machine.currency,
        machine.workers_per_node,
        machine.cores_per_node_billed is not None,
        machine.pue,
    )
