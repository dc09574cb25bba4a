"""Snakemake itself is interrupted while its jobs run: by Ctrl-C, by SIGTERM, or killed. The next
call goes on.
"""

import signal

import pytest

from tests.slurm.conftest import Cluster, Project, ended, running, submitted, until
from tests.slurm.undisturbed import losses

pytestmark = pytest.mark.more

EPOCHS = 10  # of eight steps


def test_control_c_then_killed_and_started_again(project: Project, cluster: Cluster):
    """Ctrl-C cancels the jobs. When Snakemake is killed they run on, and the next one waits for
    them.

    Neither is then submitted again, and no lock is met.
    """
    project.study("small", {"workers": [1, 2], "global_batch": [512]}, epochs=EPOCHS)
    brake = project.brake(1)  # no job ends before Snakemake has started again
    process = project.start()
    running(project, 2)
    process.send_signal(signal.SIGINT)
    assert ended(process, 60) != 0
    until(lambda: not cluster.jobs(), 30)
    assert project.runs() == [], project.said

    process = project.start()
    running(project, 2)
    assert "was killed here" not in project.said
    process.kill()
    process.wait()
    assert len(cluster.jobs()) == 2, project.said

    process = project.start()
    until(lambda: "waiting for 2 SLURM jobs that an earlier Snakemake left" in project.said, 120)
    brake.unlink()
    assert ended(process, 600) == 0, project.said
    assert "an earlier Snakemake was killed here; its lock is removed" in project.said
    assert "these jobs have ended" in project.said
    assert len(project.runs()) == 2
    assert (project.folder / "results/small/fat/report.html").is_file()
    assert list(submitted(project).values()) == [2, 2]  # once before Ctrl-C, once after
    one, two = (losses(folder) for folder in project.runs())
    assert one[:8] == pytest.approx(two[:8], rel=1e-5)  # of the first epoch; then rounding grows


@pytest.mark.slow
def test_sigterm_lets_running_jobs_finish_and_submits_no_more(project: Project, cluster: Cluster):
    project.study("small", {"workers": [1, 2], "global_batch": [512]}, epochs=EPOCHS)
    project.brake(1)
    process = project.start("--jobs", "1")
    running(project)
    process.send_signal(signal.SIGTERM)
    ended(process, 200)
    assert "Will exit after finishing currently running jobs" in project.said
    assert len(project.runs()) == 1, project.said
    assert list(submitted(project).values()) == [1], project.said
    until(lambda: not cluster.jobs(), 30)  # a job that has ended may still be completing
