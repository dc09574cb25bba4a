"""What if: rates of training on another machine, with another batch, model or precision, computed from a study's runs.

`changes.py` reads what is asked, `series.py` makes series of records, `computed.py` has the formulas and says when
nothing can be said, `picture.py` draws, `make.py` writes table and figure. docs/prediction.md explains it to people.
"""
