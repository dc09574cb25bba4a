"""Processes of all kinds are killed (SIGKILL) in a random order, one or two at a time. The next call ends well all the
same, with the losses of a study that nobody disturbed, and nothing is left in memory or on disk.

`DDLBENCH_SLOW=1 pytest tests/workflow/test_kills.py`; DDLBENCH_KILLS=7,8,9 names other seeds than those of every day.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import psutil
import pytest
import yaml
from ddlbench.core import layout

from tests.conftest import Once, copy_or_link, copy_project, shared, until
from tests.contract.launches import survivors

pytestmark = pytest.mark.slow

SEEDS = [int(seed) for seed in os.environ.get("DDLBENCH_KILLS", "1,2,3").split(",")]
STUDY = {
    "title": "Kills",
    "dataset": "mnist5k",
    "recipe": "demo",
    "models": ["lenet"],
    "schedules": ["cosine"],
    "epochs": 2,
    "runs": {
        "pictures": {
            "frameworks": ["ddp", "horovod"],
            "loaders": ["native"],
            "workers": [2],
            "batch_per_worker": [64],
        },
        "records": {
            "frameworks": ["ddp"],
            "loaders": ["dali-cpu"],
            "form": "tfrecord",
            "workers": [1],
            "batch_per_worker": [128],
        },
    },
    "figures": {"accuracy": {"plot": "accuracy-epochs", "runs": ["pictures", "records"]}},
}
MACHINE = {
    "launcher": "local",
    "device": "cpu",
    "device_name": "CPU core",
    "workers_per_node": 2,
    "start_timeout_s": 90,
}
# What a process is, by a word of its command line; the first that fits. A loader's processes are forks of its rank.
KINDS = (
    ("supervisor", "ddlbench.run "),
    ("launcher", "ddlbench.run.local"),
    ("rank", "ddlbench.train"),
    ("snakemake", "snakemake --profile"),
)
JOB = "job"  # what else Snakemake starts: a shell, prepare, the preflight, a script
LOADER = "loader"
ALL = ("rank", LOADER, "launcher", "supervisor", "snakemake", JOB)
MOST_LATE_S = 4.0  # a strike comes so much later than the first process of its kind
LONGEST_S = 900.0


def kind(process: psutil.Process) -> str:
    """Return what a process of a call is."""
    command = " ".join(process.cmdline())
    found = next((kind for kind, word in KINDS if word in f"{command} "), JOB)
    parent = process.parent()
    if (
        found == "rank"
        and parent is not None
        and "ddlbench.train" in " ".join(parent.cmdline()[:4])
    ):
        return LOADER
    return found


@dataclass
class Study:
    """A project with the study, and folders of its own in the place of this machine's memory and temporary files."""

    folder: Path
    memory: Path
    temporary: Path
    marker: str = field(default_factory=lambda: f"DDLBENCH_TEST={uuid.uuid4().hex}")
    said: list[str] = field(default_factory=list)

    def start(self) -> "Call":
        """What users type, beside the view of memory."""
        output = self.folder.parent / f"said-{len(self.said)}.txt"
        self.said.append(str(output))
        snakemake = [sys.executable, "-m", "snakemake", "--profile", "profiles/local"]
        snakemake += ["--config", "study=kills", "machine=kills"]
        view = f'mount --make-rprivate / && mount --bind "{self.memory}" /dev/shm && exec "$@"'
        environment = os.environ | {"TMPDIR": str(self.temporary)} | dict([self.marker.split("=")])
        with output.open("w") as file:
            process = subprocess.Popen(
                ["unshare", "--mount", "sh", "-c", view, "_", *snakemake],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return Call(self, process, output)

    def processes(self) -> dict[str, list[psutil.Process]]:
        """Living processes of this study's calls by kind."""
        found: dict[str, list[psutil.Process]] = {kind: [] for kind in ALL}
        for pid in survivors(self.marker):
            try:
                process = psutil.Process(pid)
                found[kind(process)].append(process)
            except psutil.NoSuchProcess:
                continue
        return found

    def losses(self) -> dict[str, list[float]]:
        """Losses of all ranks and steps by run."""
        return {
            path.parent.name: pd.read_parquet(path).sort_values(["step", "rank"])["loss"].tolist()
            for path in sorted(self.folder.glob(layout.run("*") + "/steps.parquet"))
        }

    def files(self) -> set[str]:
        """Return what lies in the results, in Snakemake's folder for what is not complete, and in
        memory.

        Temporary files of a killed process stay until the system clears them. Preflights that were
        made again are kept beside each other.
        """
        of_snakemake = self.folder / ".snakemake"
        places = [of_snakemake / "locks", of_snakemake / "incomplete", of_snakemake / "ddlbench"]
        return {
            str(path.relative_to(self.folder.parent))
            for place in [*places, self.folder / "results", self.memory]
            for path in place.rglob("*")
            if (path.is_file() or path.is_socket())
            and path.parent.name != "kept"
            and path != self.folder / "results/README.md"
        }


@dataclass
class Call:
    """A Snakemake that was started."""

    study: Study
    process: subprocess.Popen[bytes]
    output: Path

    def ended(self) -> bool:
        return self.process.poll() is not None

    def end(self) -> int:
        """Wait for it, and return its exit code. What it said is shown if it hangs."""
        try:
            return self.process.wait(LONGEST_S * shared())
        except subprocess.TimeoutExpired:
            pytest.fail(f"it does not end: {self.output.read_text()[-3000:]}")

    def strike(self, draw: random.Random, kinds: tuple[str, ...]) -> list[str]:
        """Kill a process of each of these kinds at once, some time after the first of them lives. Return what was
        killed; nothing if the call ended before."""
        late_s = draw.uniform(0, MOST_LATE_S)
        while not self.study.processes()[kinds[0]]:
            if self.ended():
                return []
            time.sleep(0.2)
        time.sleep(late_s)
        there = self.study.processes()
        victims = [
            draw.choice(sorted(there[one], key=lambda p: p.pid)) for one in kinds if there[one]
        ]
        killed = [
            f"{kind(one)}: {' '.join(one.cmdline())[:120]}" for one in victims if one.is_running()
        ]
        for one in victims:
            one.send_signal(signal.SIGKILL)
        return killed


@pytest.fixture(scope="module")
def undisturbed(once: Once) -> Study:
    """The study, made from nothing to the end."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare, for a memory of its own")

    def make(folder: Path) -> None:
        project = copy_project(folder / "project")
        (project / "config/studies/kills.yaml").write_text(yaml.safe_dump(STUDY))
        (project / "config/machines/kills.yaml").write_text(yaml.safe_dump(MACHINE))
        config = yaml.safe_load((project / "config/config.yaml").read_text())
        config["checkpoint"] = {"minutes": 0.01}
        (project / "config/config.yaml").write_text(yaml.safe_dump(config))
        study = of(folder)
        call = study.start()
        assert call.end() == 0, call.output.read_text()

    return of(once("kills", make))


def of(folder: Path) -> Study:
    for name in ("memory", "tmp"):
        (folder / name).mkdir(exist_ok=True)
    return Study(folder / "project", folder / "memory", folder / "tmp")


@pytest.fixture
def study(undisturbed: Study, tmp_path: Path) -> Iterator[Study]:
    """A copy of it that has prepared nothing and trained nothing yet."""
    project = tmp_path / "project"
    skipped = shutil.ignore_patterns("results", ".snakemake")
    shutil.copytree(
        undisturbed.folder, project, symlinks=True, copy_function=copy_or_link, ignore=skipped
    )
    made = of(tmp_path)
    yield made
    for pid in survivors(made.marker):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_is_killed_the_next_call_ends_well(
    study: Study, undisturbed: Study, seed: int
) -> None:
    draw = random.Random(seed)
    first = list(ALL)
    draw.shuffle(first)
    story: list[str] = []
    for number, one in enumerate(first[: draw.randint(2, 4)]):
        kinds = (one,) if draw.random() < 0.5 else (one, draw.choice(ALL))
        call = study.start()
        killed = call.strike(draw, kinds)
        code = call.end()
        story += [
            f"call {number} of seed {seed}: {kinds}: ended with {code}",
            *(f"  killed {what}" for what in killed),
        ]
    told = "\n".join(story)
    call = study.start()
    code = call.end()
    print(told)
    assert code == 0, f"{told}\n{call.output.read_text()[-6000:]}"
    assert study.losses() == undisturbed.losses(), told
    until(lambda: not survivors(study.marker), 30)
    assert sorted(study.files() ^ undisturbed.files()) == [], told
