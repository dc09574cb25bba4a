"""From a study and a machine to runs, their launch lines and their bill. Start with `runs.py`."""
