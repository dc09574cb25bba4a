"""`python -m ddlbench`: the same as `ddlbench` (`commands/main.py`)."""

from ddlbench.commands.main import main

if __name__ == "__main__":
    main()
