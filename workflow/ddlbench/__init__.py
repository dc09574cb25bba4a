"""ddlbench: how far does your training scale, and at what price?

The rooms, in the order in which they may import each other: `core/` (values that travel),
`settings/` (files of people), `data/` (pictures on disk), `train/` (in a rank), `analysis/` and
`records/` (records to tables), `audit/`, `plan/` (a study becomes runs), `slurm/`, `run/` (around
the ranks), `preflight/`, `show/` (figures and the page), `outlook/`, `commands/`.
"""

__version__ = "0.2.0"
