"""own: what a user's program trains with is its own affair. No study can name it
(`core/registry.py`).
"""

PACKAGE: str | None = None
DISTRIBUTION = "torch"  # most have it
