"""Names of what lies in the folder of a job of inference."""

# while the job runs: what the supervisor tells the ranks, their notes, what they leave
PARTIAL = ".partial"
ASSIGNMENT = "assignment.json"  # what the supervisor tells the ranks
# what they leave; with `took_s`, the whole job's time, in the folder itself when all is well
RECORD = "inference.json"
LOG = "infer.log"  # what its processes print
FAILED = "failed"  # what the last try left, with `failure.json`, if it failed
FORMAT = 1
