"""What must hold for whatever is given, with inputs that hypothesis makes up; it shows the smallest
one that fails.

The same inputs come each time, so a test that passes here passes elsewhere.
"""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from ddlbench.analysis import intervals, significance
from ddlbench.analysis.refusals import RefusedError
from ddlbench.core.files import as_text, from_text, read_csv, write_csv
from ddlbench.core.record import MLLOG, STEPS
from ddlbench.core.schedule import learning_rate, peak_lr, warm_up_fault
from ddlbench.core.spec import RunSpec
from ddlbench.data.verify import glance, verify
from ddlbench.records import ours
from ddlbench.settings.config import ConfigError, read_yaml
from ddlbench.settings.study import SCHEDULES
from ddlbench.train.loaders._sampling import share, shuffled
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.builders.plans import run_spec
from tests.builders.records import SPEC, write_record
from tests.unit.damage import SHARD, TAR
from tests.unit.made_up import FEW, TEXTS, spoilt

RATES = st.floats(0.01, 1e6)
SEVERAL = st.lists(RATES, min_size=1, max_size=12)
SHARDS = [
    (form, f"{shard}{end}")
    for form, shard in (("tfrecord", SHARD), ("webdataset", TAR))
    for end in ("", ".idx")
]


@FEW
@given(
    framework=st.sampled_from(["ddp", "horovod", "deepspeed", "fsdp"]),
    schedule=st.sampled_from(SCHEDULES),
    workers=st.integers(1, 2048),
    share_of_one=st.integers(1, 512),
    repeat=st.integers(1, 999),
    epochs=st.integers(1, 90),
)
def test_a_run_is_the_same_after_it_was_written_down(
    framework: str, schedule: str, workers: int, share_of_one: int, repeat: int, epochs: int
) -> None:
    said = {
        "framework": framework,
        "schedule": schedule,
        "workers": workers,
        "workers_per_node": workers,
    }
    spec = run_spec(**said, global_batch=workers * share_of_one, repeat=repeat, epochs=epochs)
    back = RunSpec.from_json(spec.to_json())
    assert back == spec
    assert back.id == spec.id


@FEW
@given(
    images=st.integers(0, 300),
    batch=st.integers(1, 64),
    world=st.integers(1, 9),
    first=st.integers(0, 5),
    seed=st.integers(0, 9),
)
def test_each_picture_of_an_epoch_is_in_one_batch_of_one_rank(
    images: int, batch: int, world: int, first: int, seed: int
) -> None:
    order = shuffled(images, seed, 0)
    assert sorted(order.tolist()) == list(range(images))
    ranks = [list(share(order, batch, rank, world, first)) for rank in range(world)]
    steps = list(zip(*ranks, strict=True))
    seen = [int(one) for step in steps for part in step for one in part]
    assert seen == order[first * batch :].tolist()
    for step in steps:
        sizes = [len(part) for part in step]
        assert max(sizes) - min(sizes) <= 1


@FEW
@given(
    schedule=st.sampled_from(SCHEDULES),
    batch=st.integers(1, 65_536),
    epochs=st.integers(1, 90),
    at=st.floats(0, 1, exclude_max=True),
    warm=st.integers(0, 10),
    scaling=st.sampled_from(["linear", "sqrt", "none"]),
)
def test_a_rate_is_never_below_nothing_nor_above_its_peak(
    schedule: str, batch: int, epochs: int, at: float, warm: int, scaling: str
) -> None:
    spec = run_spec(schedule=schedule, global_batch=batch, epochs=epochs)
    spec = replace(spec, recipe=replace(spec.recipe, warmup_epochs=warm, lr_scaling=scaling))
    assume(warm_up_fault(spec) is None)
    peak = peak_lr(spec.recipe, batch)
    begins = spec.recipe.base_lr if spec.recipe.warmup_lr is None else spec.recipe.warmup_lr
    rate = learning_rate(spec, at * epochs)
    assert math.isfinite(rate)
    assert -1e-12 <= rate <= max(peak, begins) * (1 + 1e-9)


@FEW
@given(values=SEVERAL, factor=st.floats(0.001, 1000))
def test_an_interval_goes_with_its_unit_and_holds_its_middle(
    values: list[float], factor: float
) -> None:
    seen = intervals.over_repeats(values)
    other = intervals.over_repeats([value * factor for value in reversed(values)])
    assert other.middle == pytest.approx(seen.middle * factor, rel=1e-9)
    assert (seen.low is None) == (seen.high is None) == (len(values) == 1)
    if seen.low is not None and seen.high is not None and other.low is not None:
        assert other.low == pytest.approx(seen.low * factor, rel=1e-6, abs=1e-12)
        assert seen.low <= seen.high


@FEW
@given(pairs=st.lists(st.tuples(RATES, RATES), min_size=1, max_size=12))
def test_a_ratio_turned_round_is_its_inverse_with_the_other_verdict(
    pairs: list[tuple[float, float]],
) -> None:
    left, right = (dict(enumerate(side)) for side in zip(*pairs, strict=True))
    ratio, turned = significance.ratio(left, right), significance.ratio(right, left)
    if len(pairs) % 2:  # the middle of an even number lies between two, evenly
        assert turned.middle == pytest.approx(1 / ratio.middle, rel=1e-9)
    other = {significance.FASTER: significance.SLOWER, significance.SLOWER: significance.FASTER}
    assert turned.verdict == other.get(ratio.verdict, significance.CANNOT_TELL)
    if ratio.low is not None and turned.high is not None:
        assert turned.high == pytest.approx(1 / ratio.low, rel=1e-6)


@FEW
@given(rows=st.lists(st.fixed_dictionaries({"a": TEXTS, "b": TEXTS}), max_size=5))
def test_texts_of_a_table_come_back_and_none_is_a_formula(
    rows: list[dict[str, str]], tmp_path: Path
) -> None:
    # No reader of tables tells these line ends apart.
    rows = [{name: value.replace("\r", "") for name, value in row.items()} for row in rows]
    write_csv(tmp_path / "table.csv", rows, ["a", "b"])
    assert read_csv(tmp_path / "table.csv") == rows
    for value in {value for row in rows for value in row.values()}:
        assert from_text(as_text(value)) == value
        assert str(as_text(value))[:1] not in "=@" or value == ""


@FEW
@given(text=st.text(max_size=200) | st.binary(max_size=200))
def test_a_file_of_settings_is_a_mapping_or_one_line_says_why_not(
    text: str | bytes, tmp_path: Path
) -> None:
    path = tmp_path / "any.yaml"
    path.write_bytes(
        text if isinstance(text, bytes) else text.encode("utf-8", errors="surrogatepass")
    )
    try:
        assert isinstance(read_yaml(path), dict)
    except ConfigError as error:
        assert str(error).startswith(f"{path}: ")


PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-(10**15), 10**15)
    | st.text(st.characters(codec="ascii", categories=["L", "N"]), max_size=8)
)


@FEW
@given(
    said=st.dictionaries(
        st.text("abcdef", min_size=1, max_size=5),
        PLAIN | st.lists(PLAIN, max_size=3),
        min_size=1,
        max_size=5,
    )
)
def test_settings_are_the_same_after_they_were_written_down(
    said: dict[str, object], tmp_path: Path
) -> None:
    path = tmp_path / "written.yaml"
    path.write_text(yaml.safe_dump(said))
    assert read_yaml(path) == said


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_record(tmp_path_factory.mktemp("records"), SPEC)


@FEW
@given(
    name=st.sampled_from([MLLOG, STEPS]),
    at=st.floats(0, 1, exclude_max=True),
    by=st.integers(1, 255),
    cut=st.booleans(),
)
def test_a_record_of_which_a_byte_changed_or_the_end_is_gone_is_refused(
    name: str, at: float, by: int, cut: bool, record: Path, tmp_path: Path
) -> None:
    """Its seal holds the digest of each file: whatever byte it is, the record is in no table."""
    folder = tmp_path / record.name
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(record, folder)
    data = bytearray((folder / name).read_bytes())
    place = int(at * len(data))
    if cut:
        del data[place:]
    else:
        data[place] = (data[place] + by) % 256
    (folder / name).write_bytes(bytes(data))
    with pytest.raises(RefusedError):
        ours.record(folder)


def test_the_record_itself_is_believed(record: Path) -> None:
    assert ours.record(record).spec == SPEC


@FEW
@given(
    file=st.sampled_from(SHARDS),
    at=st.floats(0, 1, exclude_max=True),
    by=st.integers(1, 255),
    cut=st.booleans(),
)
def test_a_form_of_which_a_byte_changed_or_the_end_is_gone_is_named(
    file: tuple[str, str], at: float, by: int, cut: bool, forms: dict[str, Path]
) -> None:
    form, name = file
    path = forms[form] / name
    whole = path.read_bytes()
    data = bytearray(whole)
    place = int(at * len(data))
    if cut:
        del data[place:]
    else:
        data[place] = (data[place] + by) % 256
    path.write_bytes(bytes(data))
    try:
        problems = verify([forms[form]])
        assert problems
        assert all(line.isprintable() for line in [*problems, *glance(forms[form])])
    finally:
        path.write_bytes(whole)


@FEW
@given(data=st.data())
def test_whatever_a_manifest_says_a_form_is_whole_or_one_line_says_why_not(
    data: st.DataObject, forms: dict[str, Path]
) -> None:
    path = forms["raw"] / "manifest.json"
    whole = path.read_text()
    path.write_text(json.dumps(spoilt(json.loads(whole), data)))
    try:
        lines = [*verify([forms["raw"]]), *glance(forms["raw"])]
        assert all(line.isprintable() for line in lines)
    finally:
        path.write_text(whole)
