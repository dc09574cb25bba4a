"""Made-up plans, machines, records, tables and results that are valid: a test says only what it is
about.
"""
