"""`ddlbench answer`: what to take, how surely, and what would settle the rest, of the runs that are
there.
"""

from pathlib import Path

from ddlbench.commands.call import Call, older, page_line
from ddlbench.commands.of_study import ALL, JSON
from ddlbench.core import layout
from ddlbench.settings.config import ConfigError

PLACE = 2
HELP = "what to choose, how sure that is, and which runs would decide the rest"
ARGUMENTS = JSON | ALL


def run(call: Call) -> int:
    """Answer, and return the exit code."""
    from ddlbench.answers import wording
    from ddlbench.commands import configuration
    from ddlbench.show.page import about, numbers, partial, write

    config, _, planned = call.settings
    home, study = Path(layout.page(planned.home)).parent, about.from_plan(planned, (), {})
    made = Path(layout.tables(planned.home)) / "runs.parquet"
    if planned.study.records and not made.exists():
        raise ConfigError(f"{made}: is not made yet; make it: {call.snakemake('tables')}")
    try:
        found = (
            None
            if older(planned, made) or not made.exists()
            else write.first_screen(study, *write.read_tables(study, home))
        )
    except FileNotFoundError:  # some of what the page reads is not made yet
        found = None
    if found is None:
        found = partial.first_screen(
            config, configuration.terms(planned.machine, config["checkpoint"])
        )
    told = [wording.told(one, study.nouns) for one in found.answers]
    rest = [f"{words.question} {words.text}" for words in told if words.text]
    rest += [f"  {other}" for words in told for other in words.others]
    rest += [f"Not asked: {words}" for words in wording.not_asked(found, study.nouns)]
    lines = wording.lines(found, study.nouns) or [
        "no run has finished successfully yet: there is nothing to answer"
    ]
    call.show(rest, numbers.plain(found), answer=[*lines, *page_line(home)])
    return 0
