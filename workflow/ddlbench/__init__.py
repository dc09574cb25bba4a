"""ddlbench: how far does your training scale, and at what price?

Rooms, in the order of the data: `settings/` (files that people write), `data/` with `datasets/` and `forms/` (pictures
on disk), `plan/` (a study becomes runs), `preflight/`, `run/` (around the ranks), `rank/` (in a rank) with
`frameworks/` and `loaders/`, `analysis/` (records to tables), `figures/`. Values that travel lie beside this file:
`recipe.py` and `spec.py` (what a run is), `record.py` (what it leaves), `notes.py`, `registry.py`.
"""

__version__ = "0.1.0"
