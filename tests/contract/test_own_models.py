"""Models that people wrote: found without being imported, and refused in one line that names file
and line.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from ddlbench.settings import own_models as source
from ddlbench.settings.config import ConfigError
from ddlbench.settings.own_models import find
from ddlbench.train import models, own_models
from ddlbench.train.own_models import ModelError

from tests.builders.plans import run_spec
from tests.facts import missing, refuses
from tests.unit.conftest import files  # noqa: F401 (a fixture)
from tests.unit.spoiled import Files, bad_input

WIDE = """\
import sys
from torch import nn
from . import parts
def build(classes, side):
    return nn.Sequential(nn.Flatten(), parts.act(), nn.Linear(3 * side * side, classes))
def shape(classes, side):
    return build(classes + 1, side)
def exits(classes, side):
    print("much" * 10_000)
    sys.exit(0)
def nothing(classes, side):
    pass
def short(classes):
    pass
class Net(nn.Module):
    def __init__(self, classes, side):
        super().__init__()
        self.inner = build(classes, side)
class Changes(Net):
    def forward(self, x):
        return self.inner(x.sub_(0.5))
class Choice(Net):
    def forward(self, x):
        return self.inner(x).argmax(1)
class Pair(Net):
    def forward(self, x):
        return self.inner(x), x
class Raises(Net):
    def forward(self, x):
        return parts.bad(x)
class Unused(Net):
    def __init__(self, classes, side):
        super().__init__(classes, side)
        self.other = nn.Linear(2, 2)
    def forward(self, x):
        return self.inner(x)
class Detached(Net):
    def forward(self, x):
        return self.inner(x).detach()
class Weightless(nn.Flatten):
    def __init__(self, classes, side):
        super().__init__()
    def forward(self, x):
        return x.flatten(1)[:, :5]
class Looks(Net):
    def forward(self, x):
        return self.inner(x * 2 if x.max().item() > 1e9 else x)
class Lazy(nn.Module):
    def __init__(self, classes, side):
        super().__init__()
        self.last = nn.LazyLinear(classes)
    def forward(self, x):
        return self.last(x.flatten(1))
class LazyConv(Lazy):
    def __init__(self, classes, side):
        super().__init__(classes, side)
        self.last = nn.Sequential(nn.LazyConv2d(classes, side), nn.Flatten())
    def forward(self, x):
        return self.last(x)
class Double(Net):
    def __init__(self, classes, side):
        super().__init__(classes, side)
        self.double()
    def forward(self, x):
        return self.inner(x.double()).float()
class Complex(Net):
    def __init__(self, classes, side):
        super().__init__(classes, side)
        import torch
        self.turn = nn.Parameter(torch.ones(classes, dtype=torch.complex64))
    def forward(self, x):
        return (self.inner(x) * self.turn).real
class Huge(Net):
    def __init__(self, classes, side):
        super().__init__(classes, side)
        self.wide = nn.Linear(1 << 22, 1 << 22)
class Hangs(Net):
    def forward(self, x):
        while True:
            try:
                parts.wait()
            except Exception:
                pass
number = 7
"""
PARTS = """\
import time
from torch import nn
act = nn.ReLU
def wait():
    time.sleep(0.001)
def bad(x):
    raise ValueError("two\\nlines")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of models, as config/models; a module of it is imported once by all tests."""
    (tmp_path / "own_test_nets").mkdir()
    (tmp_path / "own_test_nets/wide.py").write_text(WIDE)
    (tmp_path / "own_test_nets/parts.py").write_text(PARTS)
    monkeypatch.setattr(source, "FOLDER", tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    for name in [name for name in sys.modules if name.startswith("own_test_nets")]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("build", None),
        ("Looks", None),  # at values, which the meta device has not
        ("shape", "wide.py:6: model own_test_nets.wide:shape: gives scores of shape (2, 6)"),
        ("exits", "wide.py:10: model own_test_nets.wide:exits: SystemExit: 0"),
        ("nothing", "wide.py:11: .*returns NoneType"),
        ("short", "wide.py:13: .*TypeError"),
        ("Changes", "wide.py:20: .*changes the pictures"),
        ("Choice", "wide.py:23: .*torch.int64"),
        ("Pair", "wide.py:26: .*tuple"),
        ("Raises", "parts.py:7: .*ValueError: two lines"),
        ("Unused", "wide.py:35: .*other.weight"),
        ("Detached", "wide.py:38: .*no weight"),
        ("Weightless", "wide.py:43: .*no weights"),
        ("Lazy", "wide.py:52: .*last.weight has no shape"),
        ("LazyConv", "wide.py:58: .*last.0.weight has no shape"),
        ("Double", "wide.py:64: .*inner.2.weight is torch.float64"),
        ("Complex", "wide.py:71: .*turn is torch.complex64"),
        ("Huge", "wide.py:1: .*its weights take 70"),
        ("Hangs", "parts.py:5: .*HangError: it had not ended after 2 s"),
        ("number", "wide.py:1: .*not callable"),
    ],
)
def test_a_model_is_asked_before_it_is_trained(
    folder: Path, function: str, says: str | None
) -> None:
    if hangs := function == "Hangs":  # what torch loads at first is there
        assert own_models.complaint("own_test_nets.wide:build", 5, 8, 300.0) is None
    said = own_models.complaint(f"own_test_nets.wide:{function}", 5, 8, 2.0 if hangs else 300.0)
    if says is None:
        assert said is None
    else:
        file, _, rest = says.partition(": ")
        assert said is not None and "\n" not in said and len(said) < 600
        assert said.startswith(f"{folder}/own_test_nets/{file}: ")
        assert all(word in said for word in rest.split(".*"))
    assert not list(folder.rglob("__pycache__"))  # nothing is written beside the user's files


def test_a_model_is_built_and_counted_as_any_other(folder: Path) -> None:
    for function in ("build", "Looks"):
        model = models.build(f"own_test_nets.wide:{function}", 5, 8)
        assert model(torch.rand(2, 3, 8, 8)).shape == (2, 5)
        state = torch.get_rng_state()
        assert models.flops_per_image(model, 8) == 2 * 2 * 192 * 5  # pictures get no gradient
        assert torch.equal(state, torch.get_rng_state())
    with pytest.raises(RuntimeError, match="zero_init_last"):
        models.build("own_test_nets.wide:build", 5, 8, True)


def test_a_changed_source_is_not_what_was_planned(folder: Path) -> None:
    name = "own_test_nets.wide:build"
    planned = find(name).sha256
    models.build(name, 5, 8, sha256=planned)
    (folder / "own_test_nets/parts.py").write_text(PARTS + "# more")
    with refuses(ModelError, "wide.py: ", "changed"):
        models.build(name, 5, 8, sha256=planned)


def test_a_digest_covers_what_is_imported_from_the_folder_and_nothing_else(folder: Path) -> None:
    (folder / "helper.py").write_text("import own_test_nets.wide")  # in a circle
    (folder / "other.py").write_text("")
    (folder / "own_test_nets/__init__.py").write_text("def f():\n    from helper import x")
    own = find("own_test_nets.wide:build", folder)
    assert {str(file.relative_to(folder)) for file in own.files} == {
        "own_test_nets/wide.py",
        "own_test_nets/__init__.py",
        "own_test_nets/parts.py",
        "helper.py",
    }
    (folder / "other.py").write_text("changed")
    assert find("own_test_nets.wide:build", folder) == own
    (folder / "helper.py").write_text("import own_test_nets.wide  # changed")
    assert find("own_test_nets.wide:build", folder).sha256 != own.sha256


@pytest.mark.parametrize(
    ("name", "text", "facts"),
    [
        ("absent:f", None, ("absent.py: no such file",)),
        ("mine:f", "(" * 10_000, ("mine.py",)),
        *bad_input("model", 2),
    ],
)
def test_what_is_wrong_is_said_without_importing_it(
    tmp_path: Path, name: str, text: str | None, facts: tuple[str, ...]
) -> None:
    if text is not None and "/" not in name:
        (tmp_path / f"{name.partition(':')[0]}.py").write_text(text)
    with refuses(ConfigError, *facts):
        find(name, tmp_path)


def test_a_module_that_is_installed(tmp_path: Path) -> None:
    """Of a package only what lies beside the file."""
    own = find("timm.models.resnet:resnet18", tmp_path)
    assert own.files[0].name == "resnet.py" and {file.parent for file in own.files} == {
        own.files[0].parent
    }


def test_a_study_names_models_of_its_own(files: Files) -> None:  # noqa: F811
    files.spoil("study", "models: [lenet]", "models: [nets.wide:build, lenet]")
    assert missing(files.complaint(), "models/nets/wide.py: ", "no such file") == []
    (files.folder / "models/nets").mkdir(parents=True)
    (files.folder / "models/nets/wide.py").write_text("def build(classes, side): pass")
    files.load()


def test_ids_and_columns() -> None:
    spec = run_spec(model="nets.wide:build", model_sha256="ab" * 32)
    assert "-nets.wide.build-" in spec.id and ":" not in spec.id
    assert spec.columns()["model_sha256"] == "ab" * 32
    assert "model_sha256" not in run_spec().to_json()


def test_files_that_a_model_reads_are_part_of_its_digest(folder: Path) -> None:
    (folder / "own_test_nets/words.json").write_text("{}")
    parts = folder / "own_test_nets/parts.py"
    without = find("own_test_nets.wide:build", folder)
    parts.write_text(PARTS + 'FILES = ["words.json"]\n')
    named = find("own_test_nets.wide:build", folder)
    assert without.sha256 != named.sha256 and folder / "own_test_nets/words.json" in named.files
    assert named.files[0].name == "wide.py"
    (folder / "own_test_nets/words.json").write_text("[]")
    assert find("own_test_nets.wide:build", folder).sha256 != named.sha256
    for wrong in ('FILES = ["none.json"]', "FILES = names()", 'FILES = ["../x"]', "FILES = [1]"):
        parts.write_text(f"{PARTS}{wrong}\n")
        with pytest.raises(ConfigError, match=r"parts\.py:\d+: FILES: "):
            find("own_test_nets.wide:build", folder)


@pytest.mark.more
def test_a_model_may_import_torchvision(folder: Path) -> None:
    """In a process that has not imported it yet."""
    (folder / "own_test_nets/theirs.py").write_text(
        "import torchvision\ndef build(classes, side): return"
        " torchvision.models.resnet18(num_classes=classes)\n"
    )
    asks = f"""
from pathlib import Path
from ddlbench.settings import own_models as source
from ddlbench.train import own_models
source.FOLDER = Path({str(folder)!r})
said = own_models.complaint("own_test_nets.theirs:build", 5, 32, 300.0)
assert said is None, said
"""
    done = subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
