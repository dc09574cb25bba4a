"""ddlbench: how far does your training scale, and at what price?

Start with `spec.py` (what a run is) and `plan.py` (how a study becomes runs); `launch.py` and `train.py` make a run,
`record.py` writes and reads what it leaves, `analysis/` and `figures/` turn records into tables and pictures.
"""

__version__ = "0.1.0"
