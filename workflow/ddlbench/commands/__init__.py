"""What people ask, and what the Snakefile asks.

`main.py` is the command line of `ddlbench`, `of_study/` has the commands, one file each, `call.py`
what they share. `configuration.py` reads what both are about; `snakefile.py`, `checks.py`, `start.py`,
`job_rule.py` and `next_round.py` are the Snakefile's.
"""
