"""Names of what lies in the folder of a job of inference."""

from __future__ import annotations

ASSIGNMENT = "assignment.json"  # what the supervisor tells the ranks
RECORD = "inference.json"  # what they leave
FORMAT = 1
