"""`python -m ddlbench.prepare`: what rule prepare calls; all of it is in `data/prepare.py`.

The rule's text is part of what makes prepared data stale, and with it every run that reads them. So
it stays.
"""

from ddlbench.data.prepare import main

if __name__ == "__main__":
    main()
