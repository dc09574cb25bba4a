"""docs/audit.md: `python -m ddlbench.audit.document > docs/audit.md`."""

from __future__ import annotations

from ddlbench.audit.document import page

if __name__ == "__main__":
    print(page(), end="")
