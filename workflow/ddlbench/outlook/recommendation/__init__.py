"""What to train with: time, energy and price to a target accuracy, over workers and batch, and what would change it.

`convergence.py` knows the epochs to the target by batch, `candidates.py` multiplies them with the time of an epoch,
`choice.py` compares candidates, `words.py` says it, `make.py` writes it. docs/prediction.md explains the columns.
"""
