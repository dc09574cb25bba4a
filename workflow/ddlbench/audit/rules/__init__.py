"""The rules of the audit, one file per subject. A new rule is a function with `@rule` in one of
them.
"""
