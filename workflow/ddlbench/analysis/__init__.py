"""Records to tables: pure, reads records only. `collect.py` is the way in; `tables.py` says which tables there are.

`read.py` reads one record and `trust.py` refuses those that cannot be true. `origin`, `times`, `accuracy`, `resources`,
`said` and `kernels` make columns of a record; each declares its columns beside the code that makes them.
`losses.py` says where time and efficiency went. `scaling.py` holds the formulas of scaling, `statistics.py` those of
certainty; `comparisons.py` judges
with them pairs of sides, `claims.py` what sources claim.
"""
