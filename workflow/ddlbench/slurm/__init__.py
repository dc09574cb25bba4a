"""All that knows SLURM: its queue, its nodes, what it says of a step. How Snakemake submits to it:
`patches/`.
"""
