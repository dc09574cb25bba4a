"""Within one rank: the training loop and everything that decides accuracy. Start with
`train.py`.
"""
