"""DeepSpeed 0.19, which reads CUDA_VISIBLE_DEVICES as numbers; SLURM, Kubernetes and people also
write UUIDs there.

It looks NVML's number of its GPU up in that variable (`_get_nvml_gpu_id`), and ends with a
ValueError at "GPU-...". CUDA read the variable when it began and reads it no more, so that NVML's
numbers of the same GPUs may stand there.

Upstream (deepspeedai/DeepSpeed): `available_memory` could ask NVML by the UUID that torch gives for
the device.
"""

import os

from ddlbench import patches

VISIBLE = "CUDA_VISIBLE_DEVICES"


def number_visible() -> None:
    """Put NVML's numbers into CUDA_VISIBLE_DEVICES where it has UUIDs. Raises ReleaseError,
    pynvml.NVMLError.
    """
    if all(name.strip().isdigit() for name in os.environ.get(VISIBLE, "0").split(",")):
        return
    patches.only_for("deepspeed", ("0.19",), "deepspeed_devices")
    import pynvml
    import torch

    pynvml.nvmlInit()
    handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
    every = {pynvml.nvmlDeviceGetUUID(handle): number for number, handle in enumerate(handles)}
    seen = (torch.cuda.get_device_properties(n).uuid for n in range(torch.cuda.device_count()))
    os.environ[VISIBLE] = ",".join(str(every[f"GPU-{uuid}"]) for uuid in seen)
