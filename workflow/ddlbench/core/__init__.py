"""Values that travel: a run, a recipe, a record, a path. Nothing here imports another room. Start
with `spec.py`.
"""
