"""Within one rank: the training loop and everything that decides accuracy. Start with
`loop.py`; `setup.py` makes what it needs.
"""
