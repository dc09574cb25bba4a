"""Figures of one-bit optimizers and of a slow network, from small tables made by hand."""

from ddlbench.core import registry

from tests.unit.drawings import OPTIONS, bars, draw, legend, lines, row, tables

CABLES = tables(
    *(
        row(rate * bandwidth / 10, framework=framework, workers=2, bandwidth_mbit=bandwidth)
        for framework, rate in (("deepspeed", 100.0), ("onebit", 300.0))
        for bandwidth in (10, 100)
    ),
    row(500.0, framework="deepspeed", workers=2),
)


def test_loss_over_samples() -> None:
    (axes,) = draw("loss-samples", tables(row(1.0), row(1.0, framework="horovod"))).axes
    assert lines(axes)["ddp, dali-cpu"] == [(1.2, 2.0), (2.4, 1.0), (3.6, 2 / 3)]
    assert axes.get_xlabel() == "images trained on [thousands]"


def test_throughput_over_bandwidth_leaves_out_runs_without_one() -> None:
    figure = draw("throughput-bandwidth", CABLES)
    (axes,) = figure.axes
    assert lines(axes) == {
        "deepspeed, dali-cpu": [(10, 100), (100, 1000)],
        "onebit, dali-cpu": [(10, 300), (100, 3000)],
    }
    assert legend(figure) == ["deepspeed, dali-cpu", "onebit, dali-cpu"]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["10", "100"]


def test_a_study_without_bandwidths_has_nothing_to_show() -> None:
    (axes,) = draw("throughput-bandwidth", tables(row(1.0))).axes
    assert "no finished runs" in [text.get_text() for text in axes.texts]


def test_bytes_sent_are_a_steps_and_a_nodes() -> None:
    """1 500 000 bytes over 3 epochs of 1200 / 256 = 5 steps, from one node of 4 workers."""
    (axes,) = draw("bytes-sent", tables(row(1.0, workers=4, global_batch=256))).axes
    assert bars(axes) == {"ddp, 4": [100.0]}  # kB


def test_bytes_of_a_large_message_are_written_out() -> None:
    rows = [row(1.0, workers=4, global_batch=256) | {"network_sent_bytes": sent} for sent in (18_100_000, 150_000)]
    rows[1] |= {"framework": "onebit", "run": "other"}
    (axes,) = draw("bytes-sent", tables(*rows)).axes
    assert [text.get_text() for text in axes.texts] == ["1,207", "10"]


def test_two_nodes_share_the_bytes() -> None:
    shown = tables(row(1.0, workers=4, workers_per_node=2, global_batch=256))
    data = registry.member("figures", "bytes-sent").data({"runs": shown["runs"]}, OPTIONS)
    assert data["sent_bytes_per_step"].tolist() == [50_000]
