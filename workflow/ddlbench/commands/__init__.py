"""What people call, and what the Snakefile asks (`snakefile.py`)."""
