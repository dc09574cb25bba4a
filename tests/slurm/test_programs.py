"""A user's own program on the cluster: from plan to figure on one node and on two, stopped, killed,
and gone on.
"""

import sys
import textwrap
from pathlib import Path

import pandas as pd
import psutil
import pytest

from tests.slurm.conftest import Cluster, Project, ended, make_project, stop, until
from tests.slurm.undisturbed import events
from tests.unit.programs import MODULES, module

# Ranks meet by files after each step. Rank 0 says after which step all end when it is asked to
# stop.
TRAIN = """
import os, signal, socket, subprocess, sys, time
from pathlib import Path

mode, out, steps, last = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[2], "last")
if mode == "its own" and "RANK" not in os.environ:
    world = int(sys.argv[4])
    ranks = [os.environ | {"RANK": str(rank), "WORLD_SIZE": str(world)} for rank in range(world)]
    sys.exit(max([process.wait() for process in [subprocess.Popen([sys.executable, *sys.argv], env=e) for e in ranks]]))
rank, world, asked = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), []
signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
first = int(last.read_text()) if "--resume" in sys.argv else 0
(out / "stop").unlink(missing_ok=True)
(out / f"host-{rank}").write_text(socket.gethostname())
brake = Path(__file__).parent / "brake"
for step in range(first, steps):
    time.sleep(0.3 if brake.exists() else 0.05)
    (out / f"{rank}-{first}-{step}").touch()
    while not all((out / f"{other}-{first}-{step}").exists() for other in range(world)):
        time.sleep(0.005)
    if rank == 0:
        (out / "new").write_text(str(step + 1))
        (out / "new").replace(last)
        print(f"step {step} loss {1 / (step + 1):.4f}", flush=True)
        if asked and not (out / "stop").exists():
            (out / "stop").write_text(str(step + 1))
    if (out / "stop").exists() and (out / "stop").read_text() == str(step):
        break
"""
PROGRAM = {
    "command": "python 'its code/train.py' {mode} {folder} {steps} {workers}",
    "files": ["its code"],
    "settings": {"mode": ["plain", "a b"], "steps": [40]},
    "sample": "tokens",
    "lines": "step (?P<step>[0-9]+) loss (?P<loss>[0-9.]+)",
    "resume": "--resume",
}
STUDY = {
    "title": "Mine",
    "programs": ["mine"],
    "batch_per_worker": [8],
    "runs": {"digits": {"workers": [1, 2, 4]}},
}
STUDY |= {"figures": {"efficiency": {"plot": "efficiency"}}}


@pytest.fixture
def mine(cluster: Cluster, prepared: Path, tmp_path: Path):
    """A project in a folder with a blank, and a program in another."""
    project = make_project(tmp_path / "my project", cluster, prepared)
    (project.folder / "its code").mkdir()
    (project.folder / "its code/train.py").write_text(textwrap.dedent(TRAIN))
    (project.folder / "config/programs").mkdir(exist_ok=True)
    project.write("programs", "mine", **PROGRAM)
    project.write(
        "programs",
        "own",
        **PROGRAM | {"ranks": "own", "settings": {"mode": ["its own"], "steps": [40]}},
    )
    project.write("studies", "small", **STUDY)
    yield project
    stop(project)


def steps(folder: Path) -> pd.DataFrame:
    return pd.read_parquet(folder / "steps.parquet")


@pytest.mark.slow
def test_from_plan_to_figure_on_one_node_and_on_two(
    mine: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, blocks = {"programs": ["own"], "workers": [2]}, {}
    if MODULES.exists():  # `module` is known to the nodes' login shells
        modules = module(mine.folder / "modules", "Own/1.0", ITS_OWN="here")
        monkeypatch.setenv("MODULEPATH", str(modules))
        needs = 'import os\nassert os.environ["ITS_OWN"] == "here"\n'
        (mine.folder / "its code/modular.py").write_text(needs + textwrap.dedent(TRAIN))
        # a login shell has another PATH
        command = f"{sys.executable} 'its code/modular.py' plain {{folder}} {{steps}}"
        changes = {"command": command, "environment": ["Own/1.0"], "settings": {"steps": [40]}}
        mine.write("programs", "modular", **PROGRAM | changes)
        blocks = {"modular": {"programs": ["modular"], "workers": [4]}}
    mine.write("studies", "small", **STUDY | {"runs": STUDY["runs"] | {"own": own} | blocks})
    count = 7 + len(blocks)
    assert f"{count} runs of mine" in mine.ask("plan", "fat")
    assert mine.snakemake("--jobs", "4", timeout_s=1200) == 0, mine.said
    folders = mine.runs()
    assert len(folders) == count
    for folder in folders:
        (spec,) = events(folder, "ddlbench_spec")
        workers = spec["workers"]
        assert set(steps(folder)["rank"]) == set(range(workers))
        assert len(steps(folder)) == 39 * workers
        hosts = [path.read_text() for path in (folder / "program").glob("host-*")]
        assert len(hosts) == workers
        assert len({*hosts}) == (2 if workers == 4 else 1)
        assert ("srun --label" in events(folder, "ddlbench_facts")[0]["command"]) == (
            spec["program"]["name"] != "own"
        )
    drawn = pd.read_csv(mine.folder / "results/small/fat/figures/efficiency.csv")
    assert sorted(drawn["workers"]) == [1, 1, 2, 2, 2, 4, 4] + [4] * len(blocks)
    assert drawn["efficiency"].between(0.2, 1.3).all()


@pytest.mark.slow
def test_stopped_and_killed_it_goes_on(mine: Project, cluster: Cluster) -> None:
    """The signal of a time limit, kill -9 of its supervisor, of a rank and of Snakemake: one run of
    four ranks.
    """
    mine.write("studies", "small", **STUDY | {"runs": {"digits": {"workers": [4]}}})
    brake = mine.folder / "its code/brake"
    alone = {"settings": {"mode": ["plain"], "steps": [120]}, "files": ["its code/train.py"]}
    mine.write("programs", "mine", **PROGRAM | alone)
    brake.touch()
    process = mine.start("--retries", "6")

    def at() -> int:
        found = [
            p
            for at in (".partial", "failed")
            for p in mine.folder.glob(f"results/runs/*/{at}/program/last")
        ]
        return max((int(path.read_text()) for path in found), default=0)

    def further(than: int) -> int:
        assert process.poll() is None, mine.said
        return at() if at() >= than else 0

    reached = until(lambda: further(5), 300)
    cluster.ask("scancel", "--signal=USR1", str(cluster.running("mine")))
    reached = until(lambda: further(reached + 10), 300)
    assert mine.log.count("Trying to restart job") == 1, mine.said
    for word in ("ddlbench.run", "its code/train.py"):
        theirs = [
            one
            for one in psutil.process_iter(["cmdline", "cwd"])
            if str(mine.folder) in (one.info["cwd"] or "")
        ]
        next(one for one in theirs if word in (one.info["cmdline"] or ())).kill()
        reached = until(lambda than=reached: further(than + 10), 400)
    process.kill()
    process.wait()
    process = mine.start("--retries", "6")
    brake.unlink()
    assert ended(process, 600) == 0, mine.said
    (folder,) = mine.runs()
    rows = steps(folder)
    for rank in range(4):
        assert rows[rows["rank"] == rank]["step"].tolist() == [*range(len(rows) // 4)]
    assert len(rows) // 4 in (118, 119)  # the first line of a reading says when its step ended
