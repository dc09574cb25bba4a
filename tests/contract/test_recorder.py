"""The recorder in a plain loop leaves what our own loop leaves of the same training, with delays
where they were.
"""

from pathlib import Path

import pytest
from ddlbench.records import ours

from tests.conftest import ROOT
from tests.contract import launches
from tests.unit.programs import failure, make, spec

pytestmark = pytest.mark.usefixtures("handlers")
DELAY_S = 0.02
PROGRAM = """
import sys, time
sys.path[:0] = {path!r}
from pathlib import Path
import torch
from ddlbench.core.spec import RunSpec
from ddlbench_recorder import Recorder
from tests.contract import control

def late(function):
    def slow(*arguments, **options):
        time.sleep({delay})
        return function(*arguments, **options)
    return slow

class Slow(Recorder):
    def batches(self, loader):
        return super().batches(late(lambda: batch)() for batch in loader)

control.F.cross_entropy = late(control.F.cross_entropy)  # in the forward pass
torch.optim.SGD.zero_grad = late(torch.optim.SGD.zero_grad)  # where an all-reduce would be
control.train(RunSpec.from_json({run!r}), Path({raw!r}), Slow())
"""


@pytest.fixture(params=[pytest.param(0.0, marks=pytest.mark.slow), DELAY_S])
def recorded(
    request: pytest.FixtureRequest, tmp_path: Path, data: Path
) -> tuple[float, ours.Record]:
    """The control's loop with the recorder in it, as a program, with this delay [s] in three places
    of each step.
    """
    of = launches.spec_of("plain", "ddp", 1)
    path = [str(ROOT), str(ROOT / "workflow"), str(ROOT / "recorder")]
    told = {"path": path, "delay": request.param, "run": of.to_json(), "raw": str(data / "raw")}
    (tmp_path / "train.py").write_text(PROGRAM.format(**told))
    code, place = make(tmp_path, spec(tmp_path / "train.py", reads="recorder"))
    assert code == 0, failure(place)
    return request.param, ours.record(place)


def test_steps_and_losses_are_those_of_our_loop(run, recorded):
    delay_s, record = recorded
    theirs, mine = run("plain", "ddp", 1).steps, record.steps
    assert mine["step"].tolist() == theirs["step"].tolist()
    assert mine["images"].tolist() == theirs["images"].tolist()
    assert mine["loss"].tolist() == pytest.approx(theirs["loss"].tolist(), rel=1e-4)
    assert mine["lr"].tolist() == pytest.approx(theirs["lr"].tolist())
    assert (mine["data_wait_s"] >= delay_s).all()
    assert (
        mine["forward_s"] >= 2 * delay_s
    ).all()  # what lies between a batch and the step's end is one
    assert mine["data_wait_s"].min() < delay_s + DELAY_S / 2
    unknown = record.value("ddlbench_not_measured")
    assert {"forward_s", "backward_s", "communication_s", "optimizer_s"} == unknown.keys()
