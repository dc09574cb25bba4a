"""One real GPU is put under load, as the preflight does it. Skipped where there is none."""

from ddlbench.preflight import nodes, scout, screen

from tests.gpu import needs

pytestmark = needs("cuda")


def test_this_gpu_is_screened() -> None:
    facts = scout.gpus(0)
    seen = screen.look("cuda", facts)
    screen.strain(seen, "cuda", facts)
    (row,) = nodes.rows([seen])
    assert row["verdict"] in (nodes.PASS, nodes.FAIL)  # it may be a faulty one; then `why` says so
    assert bool(row["why"]) == (row["verdict"] == nodes.FAIL)
    assert row["kind"] == facts["gpu"]["name"]
    assert row["matmul_flops_per_s"] > 1e12  # any GPU that has bf16
    assert row["memory_bytes_per_s"] > 5e10
