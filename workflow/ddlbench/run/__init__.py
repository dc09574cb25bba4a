"""Around the ranks of a run: start and watch them, keep the record of a run that ended well
(`__main__.py`).
"""
