"""All that knows SLURM: its queue, what it says of a step, and mends of how Snakemake submits to it."""
