"""What people ask, and what the Snakefile asks.

`main.py` is the command line of `ddlbench`, `answers.py` what each command does. `configuration.py` reads what both are
about; `snakefile.py` is the Snakefile's.
"""
