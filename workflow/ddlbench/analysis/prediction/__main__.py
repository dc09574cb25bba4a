"""What was asked here is asked of the workflow now."""

import sys

sys.exit("prediction: is the rule predict now: snakemake predict --config what_if='{workers: 512}'")
