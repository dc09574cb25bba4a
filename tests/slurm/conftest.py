"""A real SLURM cluster for this tier (`cluster.sh`), and projects on it as users have them."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from filelock import FileLock, Timeout

from tests.conftest import Once, copy_or_link, copy_project, until

SCRIPT = Path(__file__).with_name("cluster.sh")
HASTY = Path(__file__).with_name("hasty.py")
PACKAGES = ("slurm-wlm", "slurmdbd", "slurm-wlm-mysql-plugin", "munge", "mariadb-server")
PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "munged", "mariadbd", "unshare")
ACCOUNT = "project"  # that cluster.sh makes
# `fat` nodes hold two workers, `thin` ones one: two workers are ranks of one node, or of two.
MACHINE: dict[str, Any] = {
    "launcher": "slurm",
    "device": "cpu",
    "device_name": "core",
    "nodes": 4,
    "workers_per_node": 2,
    "partitions": [{"name": "booster", "max_nodes": 4, "max_minutes": 60}],
    "environment": {"GLOO_SOCKET_IFNAME": "lo"},
}
STUDY: dict[str, Any] = {
    "title": "Small",
    "dataset": "mnist5k",
    "recipe": "demo",
    "models": ["lenet"],
    "loaders": ["native"],
    "frameworks": ["ddp"],
    "schedules": ["cosine"],
    "epochs": 1,
    "figures": {"accuracy": {"plot": "accuracy-epochs", "runs": ["digits"]}},
}
# What `Project.brake` adds to the training.
BRAKE = """
from pathlib import Path


def _braked(*step, make=Training.step):
    if Path({file!r}).exists():
        time.sleep({seconds})
    make(*step)


Training.step = _braked
"""
# Not waiting as long as users do for a queue.
HASTE = (
    *("--slurm-init-seconds-before-status-checks", "2"),
    *("--max-status-checks-per-second", "1", "--latency-wait", "10"),
)


# The clusters that tests of one machine may have at once: folders with these endings, ports that
# differ by ten.
CLUSTERS = ("", "-2", "-3", "-4", "-5", "-6")
STATE = os.environ.get("DDLBENCH_SLURM_STATE", "/var/tmp/ddlbench-slurm")
PORT = int(os.environ.get("DDLBENCH_SLURM_PORT", "16816"))


@dataclass(frozen=True)
class Cluster:
    """A cluster; `name("up")`, `name("crash", "node2")` and so on are cluster.sh's words.

    `place`: the folder and ports that cluster.sh is to use; `environment`: what SLURM's commands
    need.
    """

    place: dict[str, str]
    environment: dict[str, str]

    def __call__(self, *words: str, **settings: str) -> None:
        """`ACCOUNTING="none"` is cluster.sh's DDLBENCH_SLURM_ACCOUNTING."""
        done = subprocess.run(
            [SCRIPT, *words],
            env=os.environ
            | self.place
            | {f"DDLBENCH_SLURM_{name}": value for name, value in settings.items()},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=180,
        )
        assert done.returncode == 0, done.stdout

    def ask(self, *command: str) -> str:
        """What a SLURM command says.

        SLURM's own commands die of SIGPIPE where the controller closes the connection while they
        ask (a node has just crashed, say): then they are asked again.
        """
        for _ in range(10):
            done = subprocess.run(
                command,
                env=os.environ | self.environment,
                capture_output=True,
                text=True,
                timeout=180,
            )
            if done.returncode != -signal.SIGPIPE:
                break
            time.sleep(1)
        done.check_returncode()
        return done.stdout

    def jobs(self, *states: str) -> list[str]:
        """Ids of jobs in the queue, in these states or any."""
        states = states or ("PENDING", "RUNNING", "COMPLETING")
        return self.ask("squeue", "-h", "-o", "%i", "-t", ",".join(states)).split()

    def running(self, part: str) -> str | None:
        """Id of the running job of the run with this in its name, None if there is none."""
        lines = self.ask("squeue", "-h", "-t", "RUNNING", "-o", "%i %k").splitlines()
        (job,) = [line.split()[0] for line in lines if part in line] or [None]
        return job

    @contextmanager
    def hidden(self, folder: Path, nodes: Sequence[str]) -> Iterator[None]:
        """These nodes see an empty folder in its place, in which nobody can write, until the
        end.
        """
        spaces = [
            Path(self.place["DDLBENCH_SLURM_STATE"], "run", f"{node}.pid").read_text().strip()
            for node in nodes
        ]
        for pid in spaces:
            mount = ["mount", "-t", "tmpfs", "-o", "ro,size=4k", "tmpfs", str(folder)]
            subprocess.run(["nsenter", "--target", pid, "--mount", *mount], check=True)
        try:
            yield
        finally:
            for pid in spaces:
                subprocess.run(
                    ["nsenter", "--target", pid, "--mount", "umount", "--lazy", str(folder)],
                    check=True,
                )

    @contextmanager
    def limited(self, limit: str) -> Iterator[None]:
        """The account has a limit, `MaxSubmitJobs=2`, until the end."""
        change = ["sacctmgr", "-i", "modify", "account", ACCOUNT, "set"]
        self.ask(*change, limit)
        try:
            yield
        finally:
            self.ask(*change, f"{limit.rpartition('=')[0]}=-1")

    def empty(self) -> None:
        """Cancel everything, and wait until it has gone."""
        for job in self.jobs():
            with suppress(subprocess.CalledProcessError):  # it has ended meanwhile
                self.ask("scancel", job)
        until(lambda: not self.jobs(), 60)


@contextmanager
def own_cluster() -> Iterator[Cluster]:
    """A cluster, not started, that is this process's alone until the end: the first that nobody
    has.
    """
    for number, ending in enumerate(CLUSTERS):
        place = {
            "DDLBENCH_SLURM_STATE": f"{STATE}{ending}",
            "DDLBENCH_SLURM_PORT": str(PORT + 10 * number),
        }
        try:
            taken = FileLock(f"{STATE}{ending}.lock").acquire(timeout=0)
        except Timeout:
            continue
        with taken:
            said = subprocess.run(
                [SCRIPT, "env"], env=os.environ | place, capture_output=True, text=True, check=True
            )
            yield Cluster(place, dict(re.findall(r"export (\w+)=(\S+)", said.stdout)))
            return
    pytest.fail(f"other tests have all {len(CLUSTERS)} clusters, {STATE} and so on")


@pytest.fixture(scope="session")
def started() -> Iterator[Cluster]:
    """This process's cluster. Four groups of this tier's tests run at once: see TOGETHER in
    tests/conftest.py.
    """
    install = f"apt-get install {' '.join(PACKAGES)}"
    if os.geteuid() != 0:
        pytest.skip(f"the SLURM tier needs root, and: {install}")
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    if not all(shutil.which(program, path=path) for program in PROGRAMS):
        if os.environ.get("CI") != "true" and os.environ.get("DDLBENCH_SLURM_INSTALL") != "1":
            pytest.skip(f"the SLURM tier needs: {install}")
        apt = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update", "-qq"], check=True, env=apt)
        subprocess.run(
            ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *PACKAGES],
            check=True,
            env=apt,
            stdout=subprocess.DEVNULL,
        )
    with own_cluster() as cluster:
        try:
            cluster("up")
            cluster.empty()  # tests that were killed leave jobs
            yield cluster
            cluster.empty()
        finally:
            cluster("down")


@pytest.fixture
def cluster(started: Cluster) -> Iterator[Cluster]:
    """The cluster, whole and idle again after the test."""
    yield started
    started("up")
    started.empty()


@pytest.fixture
def another(cluster: Cluster) -> Iterator[Callable[..., None]]:
    """`another(PROCTRACK="cgroup")`: the cluster as other sites have it, until the end of the
    test.
    """

    def made(**settings: str) -> None:
        cluster("down")
        cluster("up", **settings)

    yield made
    cluster("down")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails shows what Snakemake said last, whatever it waited for."""
    report = yield
    if report.failed and Project.latest is not None:
        report.sections.append(("What Snakemake said", Project.latest.said))
    return report


@dataclass
class Project:
    """A copy of the project on the cluster's login node."""

    latest: ClassVar[Project | None] = None  # in which Snakemake was started last

    folder: Path
    cluster: Cluster
    started: list[subprocess.Popen[str]] = field(default_factory=list)
    started_at: float = 0.0  # when Snakemake was started last

    def write(self, kind: str, name: str, **content: Any) -> None:
        """config/<kind>/<name>.yaml."""
        (self.folder / "config" / kind / f"{name}.yaml").write_text(yaml.safe_dump(content))

    def machine(self, name: str, **changes: Any) -> None:
        self.write("machines", name, **(MACHINE | changes))

    def study(self, name: str, block: dict[str, Any] | None = None, **changes: Any) -> None:
        """A study of one block, `digits`."""
        default = {"workers": [1], "global_batch": [128]}
        self.write("studies", name, **(STUDY | {"runs": {"digits": block or default}} | changes))

    def start(
        self, *arguments: str, machine: str = "fat", study: str = "small", account: str = ACCOUNT
    ) -> Any:
        """Snakemake as users call it, but for its timeout (`hasty.py`); all it says goes to
        out.log.
        """
        config = [f"study={study}", f"machine={machine}", f"account={account}"]
        command = [sys.executable, HASTY, "--profile", "profiles/slurm", *HASTE, *arguments]
        environment = {
            k: v for k, v in os.environ.items() if k != "PYTHONPATH"
        } | self.cluster.environment
        self.started_at = time.time()
        Project.latest = self
        with (self.folder / "out.log").open("w") as out:
            process = subprocess.Popen(
                [*command, "--config", *config],
                cwd=self.folder,
                env=environment,
                stdout=out,
                stderr=subprocess.STDOUT,
                text=True,
                # Where these tests run in a shell's background, children would inherit that Ctrl-C
                # does nothing.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
        self.started.append(process)
        return process

    def snakemake(self, *arguments: str, timeout_s: float = 600, **settings: str) -> int:
        """`start`, and its exit code at its end."""
        return ended(self.start(*arguments, **settings), timeout_s)

    def ask(self, question: str, machine: str, study: str = "small") -> str:
        """What `ddlbench <question>` answers about a study; it has to end well."""
        command = [
            sys.executable,
            "-m",
            "ddlbench.commands.main",
            question,
            "--study",
            study,
            "--machine",
            machine,
        ]
        environment = (
            os.environ | self.cluster.environment | {"PYTHONPATH": str(self.folder / "workflow")}
        )
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def brake(self, seconds: float) -> Path:
        """Each step of this project's runs takes so much longer as long as the file is there that
        this returns.

        So a run still trains when a test is ready to do something to it, on a fast machine and on a
        busy one, and yet its epochs are few.
        """
        file = self.folder / "brake"
        file.touch()
        with (self.folder / "workflow/ddlbench/train/loop.py").open("a") as code:
            code.write(BRAKE.format(file=str(file), seconds=seconds))
        return file

    @property
    def said(self) -> str:
        """What the terminal got."""
        return (self.folder / "out.log").read_text()

    @property
    def log(self) -> str:
        """What Snakemake itself wrote, which its log keeps: of all calls in this project, one after
        the other.
        """
        return "".join(
            path.read_text() for path in sorted(self.folder.glob(".snakemake/log/*.log"))
        )

    def runs(self) -> list[Path]:
        """Folders of runs that have a record."""
        return sorted(path.parent for path in self.folder.glob("results/runs/*/run.mllog"))


def training(project: Project, part: str = "") -> list[Path]:
    """Logs of runs with `part` in their names that train now: one epoch is over.

    A supervisor that SLURM killed before it could put a failed run aside leaves an older log; that
    one does not count.
    """
    found = []
    for log in project.folder.glob(f"results/runs/*{part}*/.partial/run.mllog"):
        with suppress(FileNotFoundError):  # its run has just ended
            if log.stat().st_mtime > project.started_at and "epoch_stop" in log.read_text():
                found.append(log)
    return found


def running(project: Project, count: int = 1) -> list[Path]:
    """Logs of runs that train, once there are so many."""

    def enough() -> list[Path]:
        assert project.started[-1].poll() is None, project.said
        logs = training(project)
        return logs if len(logs) >= count else []

    return until(enough, 300)


def submitted(project: Project) -> Counter[str]:
    """How often Snakemake submitted each rule's jobs, over all its calls in this project."""
    return Counter(re.findall(r"SLURM jobid \d+ \(log: \S*/rule_\w+/([\w.-]+)/", project.log))


def ended(process: subprocess.Popen[Any], seconds: float) -> int:
    """A process's exit code, once it has ended; as patient as `until`."""
    until(lambda: process.poll() is not None, seconds)
    return int(process.returncode)


@pytest.fixture(scope="session")
def prepared(started: Cluster, once: Once) -> Path:
    """A project in which jobs on a cluster made mnist5k as raw files, and the preflight of study
    `small` on `fat`.

    The cluster that first needs it makes it; nodes of all have the same names.
    """

    def make(folder: Path) -> None:
        project = Project(copy_project(folder), started)
        project.machine("fat")
        project.study("small")
        assert project.snakemake("preflight") == 0, project.said

    return once("prepared-by-slurm", make)


def make_project(folder: Path, cluster: Cluster, prepared: Path) -> Project:
    """A fresh project with machines `fat` and `thin` and study `small`, and with data.

    A study that expects no more of `fat` than one worker of DDP needs no preflight of its own.
    """
    project = Project(copy_project(folder), cluster)
    for made in ("data", "machines"):
        shutil.copytree(
            prepared / "results" / made, folder / "results" / made, copy_function=copy_or_link
        )
    project.machine("fat")
    project.machine("thin", workers_per_node=1)
    project.study("small")
    return project


def stop(project: Project) -> None:
    """Kill what a test that failed has left."""
    for process in project.started:
        process.kill()
        process.wait()


@pytest.fixture
def project(cluster: Cluster, prepared: Path, tmp_path: Path) -> Iterator[Project]:
    project = make_project(tmp_path / "project", cluster, prepared)
    yield project
    stop(project)
