"""What goes wrong on clusters and is made to go wrong here: each fault, what is expected, and the test that tries it.

At the end of a run of the SLURM tier pytest prints the table with what happened. `python -m tests.faults >
docs/faults.md` makes the page that shows it; `tests/unit/test_fault_table.py` holds page and tests to it.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Fault(NamedTuple):
    """A fault. `tests`: `tier/function`, in whatever file of that tier it is."""

    what: str
    expected: str
    tests: tuple[str, ...]


def _fault(what: str, expected: str, *tests: str) -> Fault:
    return Fault(what, expected, tests)


CONTRACT, SLURM, UNIT, WORKFLOW = "contract/", "slurm/", "unit/", "workflow/"

FAULTS = (
    # Ranks.
    _fault(
        "a rank raises an error",
        "the run ends within a minute; rank, node and error are named",
        CONTRACT + "test_a_rank_raises_while_others_wait",
    ),
    _fault(
        "a rank is killed",
        "the run goes on from its checkpoint, to the last bit",
        CONTRACT + "test_a_rank_is_killed_at_a_random_step",
    ),
    _fault(
        "killed ranks leave something in their node's memory",
        "their supervisor removes it, on other nodes the next run there; nothing of a living run",
        UNIT + "test_a_killed_rank_leaves_nothing_once_its_supervisor_ends",
        UNIT + "test_the_next_run_on_a_node_removes_what_killed_ranks_left",
    ),
    _fault(
        "a rank is killed on SLURM",
        "srun's own line gives rank and node",
        SLURM + "test_a_killed_rank_is_named_with_its_host",
        UNIT + "test_what_srun_says_is_the_cause",
    ),
    _fault(
        "a rank stops answering (SIGSTOP)",
        "the run ends within a minute; the rank is named",
        CONTRACT + "test_a_rank_is_stopped",
    ),
    _fault(
        "a rank crashes in compiled code",
        "the log shows where",
        CONTRACT + "test_a_crash_in_compiled_code_leaves_where_it_was",
    ),
    _fault("a loss is not finite", "the step is named", CONTRACT + "test_a_loss_is_no_number"),
    _fault("a rank runs out of memory", 'cause "out of memory"', CONTRACT + "test_out_of_memory"),
    _fault("a port is taken", "the port is named", CONTRACT + "test_a_port_is_in_use"),
    _fault(
        "another number of ranks starts",
        "refused before training",
        CONTRACT + "test_another_number_of_ranks_is_refused",
    ),
    _fault(
        "the program is not there on a node",
        '"cannot be started", with the node',
        UNIT + "test_what_srun_says_is_the_cause",
    ),
    _fault(
        "the supervisor of a run is killed",
        "no process is left; the next try goes on",
        CONTRACT + "test_the_supervisor_is_killed",
    ),
    _fault("the run is interrupted (Ctrl-C)", "no process is left, no record", CONTRACT + "test_a_run_is_interrupted"),
    # Ends that SLURM brings.
    _fault(
        "SLURM warns before the time limit",
        "a checkpoint; the next attempt goes on, to the last bit",
        SLURM + "test_a_run_is_warned_and_goes_on",
    ),
    _fault(
        "the time limit itself, many times",
        "the run ends well, to the last bit",
        SLURM + "test_the_time_limit_itself",
    ),
    _fault(
        "SIGTERM to every process of a step",
        "a checkpoint, whatever the loader",
        CONTRACT + "test_told_to_stop",
        UNIT + "test_a_signal_from_elsewhere_is_ignored_from_the_first_moment",
    ),
    _fault(
        "scancel of a running job; its shell dies first",
        "a checkpoint; the next attempt goes on",
        SLURM + "test_a_cancelled_job_leaves_a_checkpoint",
    ),
    _fault(
        "scancel of a job again and again",
        "tried again as often as the profile says, then reported",
        SLURM + "test_a_cancelled_job_is_tried_again_and_reported",
    ),
    _fault(
        "a node dies",
        "SLURM queues the job again, and it is made once",
        SLURM + "test_a_node_dies_and_its_run_is_made_again",
    ),
    _fault(
        "a node dies, then other jobs are submitted",
        "they avoid that node; a job on many nodes makes none avoided",
        SLURM + "test_a_node_dies_and_its_run_is_made_again",
        UNIT + "test_later_jobs_avoid_one_node_and_never_words_that_are_none",
    ),
    _fault(
        "another call of Snakemake ends while jobs wait (`snakemake status`)",
        "the jobs start all the same; the folders of their logs stay",
        UNIT + "test_a_call_that_ends_leaves_the_folders_of_jobs_that_wait",
    ),
    _fault(
        "a job gives way (PreemptMode=REQUEUE)",
        "it waits in the queue, and is made once",
        SLURM + "test_a_run_gives_way_and_is_made_again",
    ),
    _fault(
        "a job gives way (PreemptMode=CANCEL)",
        "it counts as cancelled",
        UNIT + "test_a_preempted_job_has_ended_when_it_left_the_queue",
    ),
    _fault(
        "a finished job is queued again",
        "its record stays as it is",
        SLURM + "test_a_finished_job_that_is_queued_again_keeps_its_record",
        UNIT + "test_only_the_job_that_was_queued_again_keeps_its_record",
    ),
    _fault("a job passes its memory limit", "said in the run's log", SLURM + "test_too_little_memory_is_said"),
    _fault(
        "a job fails",
        "tried again with more time; others go on",
        SLURM + "test_a_job_that_fails_is_tried_again_with_more_time_and_others_go_on",
    ),
    _fault(
        "one job in ten fails, of many",
        "all records are there, each made once",
        SLURM + "test_all_records_are_there_each_once",
    ),
    # SLURM itself.
    _fault(
        "unknown partition, too much time, too many nodes",
        "SLURM's message; other jobs go on",
        SLURM + "test_what_slurm_refuses_is_said_and_other_jobs_go_on",
    ),
    _fault(
        "unknown account, more GPUs than a node has",
        "SLURM's message",
        SLURM + "test_what_slurm_refuses_of_a_whole_machine_is_said",
    ),
    _fault(
        "controller and accounting go away",
        "waited for; nothing is made twice",
        SLURM + "test_controller_and_accounting_go_away_for_a_while",
    ),
    _fault(
        "no accounting at all",
        "said before the first job; squeue is asked",
        SLURM + "test_a_site_without_accounting",
        UNIT + "test_a_site_without_accounting_is_seen_at_once",
    ),
    _fault(
        "more jobs than SLURM takes (MaxSubmitJobs)",
        "the others wait; no try is used up",
        SLURM + "test_a_site_with_narrow_limits",
        UNIT + "test_a_job_that_slurm_takes_later_is_submitted_later",
    ),
    _fault(
        "an account that may submit no job at all",
        "SLURM's message",
        UNIT + "test_a_job_that_slurm_never_takes_fails",
    ),
    _fault(
        "no arrays (MaxArraySize 0)",
        "jobs start",
        SLURM + "test_a_site_with_narrow_limits",
        UNIT + "test_a_site_without_arrays_starts_jobs",
    ),
    _fault(
        "no home folder on nodes",
        "caches lie in the project's folder",
        SLURM + "test_a_site_with_narrow_limits",
        UNIT + "test_caches_lie_in_the_projects_folder",
    ),
    _fault(
        "sbatch prints a banner",
        "the job's number is found; a job without one is cancelled",
        SLURM + "test_a_site_with_narrow_limits",
        UNIT + "test_a_banner_hides_no_job",
        UNIT + "test_a_job_of_which_nobody_knows_the_number_is_cancelled",
    ),
    _fault(
        "a partition shorter than the preflight's ten minutes",
        "the preflight asks for what there is",
        SLURM + "test_a_site_with_narrow_limits",
        UNIT + "test_a_queue_shorter_than_the_preflight_is_asked_for_what_it_gives",
    ),
    _fault(
        "`$` or a space in the project's path",
        "jobs and scripts get it as it is",
        SLURM + "test_a_site_with_narrow_limits",
        UNIT + "test_a_command_reaches_the_job_as_it_is",
        UNIT + "test_scripts_are_called_by_a_path_that_is_quoted",
    ),
    _fault(
        "nodes with more cores than the machine file says",
        "no job shares the nodes of a timed run; the preflight warns",
        SLURM + "test_all_records_are_there_each_once",
        UNIT + "test_a_timed_run_has_its_nodes_to_itself",
        UNIT + "test_the_machines_file_is_compared_with_slurms_nodes",
    ),
    _fault(
        "a limit that never ends (AssocMax..., AssocGrp...)",
        "named, with what to do",
        SLURM + "test_a_limit_that_never_ends_is_named",
        UNIT + "test_a_job_that_waits_for_a_person_is_named_once",
        UNIT + "test_a_limit_that_jobs_share_is_named_once_for_all",
    ),
    _fault(
        "a node does not see the project",
        "node and folder are named",
        SLURM + "test_a_node_that_does_not_see_the_project_is_named",
        UNIT + "test_a_node_that_does_not_see_the_project_is_named",
        UNIT + "test_what_srun_says_is_the_cause",
    ),
    _fault(
        "a job is held",
        "called held, with the reason and what to type",
        SLURM + "test_a_held_job_is_called_held",
        UNIT + "test_a_job_that_waits_for_a_person_is_named_once",
    ),
    _fault(
        "Python is missing on a node",
        "node, missing file and the log of this try are named",
        SLURM + "test_python_is_not_there_on_a_node",
        UNIT + "test_a_job_that_fails_before_its_run_began",
    ),
    _fault(
        "SLURM does not answer at the start",
        "nothing is submitted",
        UNIT + "test_nothing_is_submitted_while_slurm_does_not_answer",
    ),
    _fault(
        "hidden partitions, SQUEUE_STATES",
        "no job is overlooked",
        UNIT + "test_the_users_settings_of_squeue_hide_no_job",
    ),
    # Snakemake.
    _fault(
        "Ctrl-C at Snakemake",
        "jobs are cancelled; the next call goes on",
        SLURM + "test_control_c_then_killed_and_started_again",
    ),
    _fault(
        "Ctrl-C while jobs wait to be submitted, or just are",
        "all jobs of the call are cancelled, no other is submitted",
        SLURM + "test_ctrl_c_leaves_no_job_that_waits_for_room",
        UNIT + "test_ctrl_c_cancels_every_job_of_this_call_and_submits_no_more",
    ),
    _fault(
        "SIGTERM to Snakemake",
        "running jobs end, no more are submitted",
        SLURM + "test_sigterm_lets_running_jobs_finish_and_submits_no_more",
    ),
    _fault(
        "kill -9 of Snakemake",
        "its jobs are waited for and count; nothing is made twice",
        SLURM + "test_control_c_then_killed_and_started_again",
    ),
    _fault(
        "kill -9 of Snakemake, then another recipe",
        "all runs are made again, with and without `.snakemake`",
        SLURM + "test_runs_that_outlive_a_killed_snakemake_are_made_again_with_other_settings",
    ),
    _fault(
        "a record of another recipe among those of today",
        "refused, in no table and no figure",
        UNIT + "test_a_record_of_another_recipe_is_refused_and_the_others_are_collected",
    ),
    _fault(
        "code is edited while jobs wait",
        "finished records stay as they are",
        SLURM + "test_code_that_is_edited_while_a_job_waits_harms_no_record",
    ),
    _fault(
        "the recipe is edited while jobs wait",
        "recipes are not mixed; the next call makes all again",
        SLURM + "test_a_recipe_that_is_edited_while_a_job_waits_mixes_nothing",
    ),
    _fault(
        "a lock of a dead Snakemake",
        "removed; that of a living one stays",
        UNIT + "test_a_lock_goes_when_nobody_lives_who_holds_it",
    ),
    _fault(
        "two jobs make one run, on two nodes",
        "the second names the first and ends",
        SLURM + "test_a_supervisor_sees_another_one_on_another_node",
    ),
    # Disks and files.
    _fault(
        "the disk is full while a run logs",
        'cause "disk full"; other records stay whole',
        CONTRACT + "test_the_disk_is_full",
    ),
    _fault(
        "ranks end with exit code 0 and without rows",
        "a failed run; what is missing is named, and the next try trains",
        UNIT + "test_ranks_that_end_well_and_leave_no_record",
    ),
    _fault(
        "the disk is full when the reason is written",
        "the reason is printed; no older one stands for it",
        UNIT + "test_an_older_reason_never_stands_for_this_one",
    ),
    _fault(
        "a run's folder cannot be moved", "the reason is printed", UNIT + "test_what_cannot_be_moved_hides_no_reason"
    ),
    _fault("the disk is full while data are prepared", "one line; the next call goes on", UNIT + "test_a_full_disk"),
    _fault(
        "`prepare` is killed at any moment",
        "it goes on, and the form is the same",
        UNIT + "test_killed_at_random_moments_it_goes_on",
    ),
    _fault("a process of `prepare` is killed", "said in one line", UNIT + "test_a_killed_process_is_told"),
    _fault(
        "data are replaced while a run reads them",
        "the old form stays",
        UNIT + "test_a_reader_that_comes_while_the_form_is_made_keeps_the_old_one",
    ),
    _fault("data are missing", "the manifest is named", CONTRACT + "test_data_is_missing"),
    _fault(
        "data are damaged",
        "the run does not start; the file is named",
        UNIT + "test_a_run_with_damaged_data_does_not_start",
    ),
    _fault("a byte of the data is flipped", "`verify` names the record", UNIT + "test_a_flipped_byte"),
    _fault(
        "a record is of another run, or its bits are flipped",
        "refused, with the file",
        UNIT + "test_a_whole_record_of_another_run",
        UNIT + "test_any_bit_that_flips_and_any_cut_is_noticed",
    ),
    _fault(
        "a job is submitted twice, or two clones have one `results/`",
        "a finished record and the log of a living run stay as they are",
        UNIT + "test_a_job_that_was_submitted_twice_takes_no_log",
        UNIT + "test_a_late_job_leaves_the_finished_record_and_its_log",
        WORKFLOW + "test_neither_a_finished_record_nor_a_living_run_is_touched",
    ),
    _fault(
        "the supervisor is killed, or a package breaks, when training is over",
        "the next call makes the record and trains nothing",
        UNIT + "test_whenever_the_supervisor_is_killed_the_next_call_makes_the_record",
        UNIT + "test_a_record_that_cannot_be_joined_is_joined_by_the_next_call",
    ),
    _fault(
        "a checkpoint is cut off, zeroed, or its bits are flipped",
        "the older one is used, or the run begins anew, and says so",
        UNIT + "test_what_cannot_be_read_is_set_aside_and_the_older_one_is_used",
        UNIT + "test_flipped_bits_and_cuts_in_a_ranks_part",
        UNIT + "test_whenever_it_is_killed_one_of_both_is_whole",
    ),
    # The machine.
    _fault(
        "a node is slow",
        "the screening names it; jobs keep off excluded nodes",
        SLURM + "test_the_screening_finds_it",
        SLURM + "test_jobs_keep_off_excluded_nodes",
    ),
    _fault(
        "an interface is not there",
        "the preflight stops before training",
        WORKFLOW + "test_an_interface_that_is_not_there_keeps_training_from_starting",
    ),
    _fault(
        "a model refuses pictures of the study's size",
        "the preflight names model and size",
        UNIT + "test_models_are_asked_for_the_studys_picture_sizes",
    ),
    _fault(
        "a module is not there, or no `module` at all",
        "the preflight stops before training",
        WORKFLOW + "test_a_module_that_is_not_there_is_an_error",
        WORKFLOW + "test_no_module_command_is_an_error",
    ),
    _fault(
        "a variable is removed while jobs wait",
        "the job names file and variable",
        UNIT + "test_a_variable_that_has_gone_is_named",
    ),
)


PAGE = """# What was made to go wrong

Made by `python -m tests.faults > docs/faults.md`; do not edit. Each of these faults is made to happen by a test:
`slurm` on a real small cluster, `contract` with real ranks, `workflow` with Snakemake, `unit` with the package alone.
After the SLURM tier (`DDLBENCH_SLOW=1 pytest tests`) pytest prints this table with what happened. What is tried in
`unit` alone was not seen on a cluster.

| fault | expected | tests |
|---|---|---|
"""


def page() -> str:
    """docs/faults.md: one row per fault, with the tiers that try it."""
    tiers = {fault: ", ".join(dict.fromkeys(test.split("/")[0] for test in fault.tests)) for fault in FAULTS}
    return PAGE + "".join(f"| {fault.what} | {fault.expected} | {tiers[fault]} |\n" for fault in FAULTS)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """After tests of the SLURM tier: each fault that was tried, what was expected, what happened."""
    heard: dict[str, list[tuple[str, str]]] = {}
    for outcome in ("passed", "failed", "error"):
        for report in terminalreporter.stats.get(outcome, []):
            if outcome != "passed" or report.when == "call":
                file, _, function = report.nodeid.split("[")[0].partition("::")
                test = f"{file.removeprefix('tests/').split('/')[0]}/{function}"
                crash = getattr(getattr(report.longrepr, "reprcrash", None), "message", "")
                heard.setdefault(test, []).append((outcome, (crash.splitlines() or [outcome])[0][:100]))
    if not any(test.startswith("slurm/") for test in heard):
        return
    tried = [(fault, [one for test in fault.tests for one in heard.get(test, [])]) for fault in FAULTS]
    tried = [(fault, happened) for fault, happened in tried if happened]
    terminalreporter.section(f"faults: {len(tried)} of {len(FAULTS)} were tried")
    for fault, happened in tried:
        wrong = [message for outcome, message in happened if outcome != "passed"]
        what = f"NOT SO: {wrong[0]}" if wrong else "as expected" + (f", {len(happened)} times" * (len(happened) > 1))
        terminalreporter.write_line(f"{fault.what} | {fault.expected} | {what}")


if __name__ == "__main__":
    print(page(), end="")
