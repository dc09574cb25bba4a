"""A small data set, and runs that are launched once and asserted on many times."""

import pickle
from collections.abc import Callable
from functools import cache
from itertools import islice
from pathlib import Path

import pytest
from ddlbench.data.datasets import mnist5k
from ddlbench.data.source import Place

from tests.conftest import Once
from tests.contract import control, launches
from tests.contract.engines import engine_packages, engines_folder, results  # noqa: F401 (fixtures)
from tests.sources import Sample, prepare_all


@pytest.fixture(scope="session")
def digits(once: Once) -> dict[str, list[Sample]]:
    """All of mnist5k; a stride of it keeps the classes balanced."""

    def read(folder: Path) -> None:
        source = mnist5k.open_source(Place(None, folder))
        entries = {split: source.entries(split) for split in ("train", "val")}
        samples = {
            split: [(e.filename, e.label, *source.read(e)) for e in of]
            for split, of in entries.items()
        }
        (folder / "samples").write_bytes(pickle.dumps(samples))

    samples = pickle.loads((once("digits", read) / "samples").read_bytes())
    return {split: [Sample(*sample) for sample in of] for split, of in samples.items()}


@pytest.fixture(scope="session")
def data(once: Once, digits: dict[str, list[Sample]]) -> Path:
    """A few hundred digits in both forms."""
    few = {
        s: list(islice(digits[s], 0, None, len(digits[s]) // n))[:n]
        for s, n in launches.IMAGES.items()
    }
    return once("data", lambda folder: prepare_all(folder, few, mnist5k.CLASSES))


@pytest.fixture(scope="session")
def run(once: Once, data: Path) -> Callable[[str, str, int], launches.Outcome]:
    """`run(case, framework, workers)`: what that run left when it ended well; launched once."""

    @cache
    def launched(case: str, framework: str, workers: int) -> launches.Outcome:
        spec = launches.spec_of(case, framework, workers)

        def launch(folder: Path) -> None:
            outcome = launches.execute(spec, folder / spec.id, data)
            (folder / "outcome").write_bytes(pickle.dumps(outcome))

        outcome: launches.Outcome = pickle.loads(
            (once(f"run-{case}-{spec.id}", launch) / "outcome").read_bytes()
        )
        return outcome

    def checked(case: str, framework: str, workers: int) -> launches.Outcome:
        launches.need(launches.spec_of(case, framework, workers))
        outcome = launched(case, framework, workers)
        assert outcome.code == 0, outcome.output
        return outcome

    return checked


@pytest.fixture(scope="session")
def controlled(data: Path) -> Callable[[str], control.Control]:
    """`controlled(case)`: the bare one-process training of a case, done once."""
    return cache(lambda case: control.train(launches.spec_of(case, "ddp", 1), data / "raw"))
