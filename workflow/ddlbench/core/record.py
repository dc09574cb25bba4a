"""Names of what lies in a run's folder. `core/rank_log.py` writes `run.mllog` (MLPerf log lines),
`core/step_table.py` makes `steps.parquet` (one row per step and rank, `core/step_rows.py`),
`core/seal.py` seals both, `core/mllog.py` reads logs.
"""

MLLOG = "run.mllog"
STEPS = "steps.parquet"
ROWS = "steps.rows"  # while the run is made: rows as they come, one after the other, of `step_type`
# the model's state dict at the end, of runs whose model inference asks (`inference/`)
WEIGHTS = "weights.pt"
KERNELS = "kernels.parquet"  # of profiled runs: train/profiler.py says what is in it
# of runs with option flops_profiler: what DeepSpeed counts of each module
FLOPS = "flops-deepspeed.json"
FLOPS_COUNTED = (
    "flops.json"  # beside it: PyTorch's count of each module's forward pass over one picture
)
SUMMARY = "summary.jsonl"  # what tables need of the record (`records/ours.py`)
COMMS = "comms.txt"  # of runs with option comms_logger: DeepSpeed's table
# What tables read beside the log.
READ = (STEPS, KERNELS, FLOPS, FLOPS_COUNTED, COMMS)
# Optional files that a run leaves beside its log and its steps.
EXTRAS = (KERNELS, WEIGHTS, "nsys-*", FLOPS, FLOPS_COUNTED, COMMS)
