"""Records to tables: pure. `collect.py` is the way in; `sheets/` has the tables, one file each, and
`tables.py` writes them.

`records/ours.py` makes a `Record` (`record.py`) of files; `summary.py` says what tables need of it.
`recorded`, `times`, `accuracy` and `kernels` make columns of a record; each declares its columns
beside the code that makes them. `losses.py` says where time and efficiency went. `scaling.py` holds
the formulas of scaling, `intervals.py` and `significance.py` those of certainty;
`comparisons.py` judges with them pairs of sides, `claim_verdicts.py` what sources claim
(`claims.py`).
"""
