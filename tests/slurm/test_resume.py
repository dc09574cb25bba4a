"""The time limit itself: the run is warned before it, is submitted again, and goes on. Daily:
test_storm.py.
"""

import pytest

from tests.slurm.conftest import Project, ended, submitted, until
from tests.slurm.undisturbed import assert_as_undisturbed, events


@pytest.mark.slow
def test_the_time_limit_itself(project: Project, tmp_path):
    """A partition that gives 4 minutes, of which the last two (or three) are the warning; the run
    would take longer.
    """
    project.machine("fat", partitions=[{"name": "booster", "max_nodes": 4, "max_minutes": 4}])
    project.study("small", {"workers": [2], "global_batch": [64]}, epochs=60)
    brake = project.brake(0.1)
    process = project.start("--retries", "20")
    until(lambda: process.poll() is not None or 2 in submitted(project).values(), 600)
    brake.unlink()
    assert ended(process, 1200) == 0, project.said
    (folder,) = project.runs()
    assert events(folder, "ddlbench_resumed")
    assert "TIMEOUT" not in project.said  # it never met the limit itself
    assert_as_undisturbed(folder, project.folder / "results/data/mnist5k", tmp_path)
