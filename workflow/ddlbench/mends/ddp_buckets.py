"""PyTorch 2.13, whose DDP says only in its private log how large its buckets are.

Upstream (pytorch/pytorch): the sizes are documented nowhere but in `_get_ddp_logging_data`, although gradients take
them a second time. A public `DistributedDataParallel.bucket_sizes` would do.
"""

from typing import Any

from ddlbench import mends


def bucket_bytes(ddp: Any) -> int:
    """Bytes of all buckets of a DistributedDataParallel. Raises ReleaseError."""
    log = mends.private(ddp, "_get_ddp_logging_data", "torch", ("2.13",), "ddp_buckets")()
    sizes = log.get("rebuilt_bucket_sizes") or log["bucket_sizes"]
    return sum(int(size) for size in str(sizes).split(","))
