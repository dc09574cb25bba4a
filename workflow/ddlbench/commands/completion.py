"""`ddlbench completion`: what bash and zsh offer after each word. It is made of the parser, so the two cannot disagree.

No library: argcomplete starts Python with each TAB, and shtab wants the names of studies from functions of each shell.
"""

import argparse
from collections.abc import Iterator

from ddlbench.core import registry

SCRIPT = """\
# For bash and zsh: source <(ddlbench completion)
[ -z "$ZSH_VERSION" ] || {{ autoload -U compinit bashcompinit && compinit && bashcompinit; }}
_ddlbench() {{
    local line="${{COMP_WORDS[*]:1:$((COMP_CWORD - 1))}} " word=${{COMP_WORDS[COMP_CWORD]}} words options
    case $line in
{cases}
    esac
    [[ $word != -* ]] || words=$options
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _ddlbench ddlbench"""
FILES = "$(command ls config/{} 2>/dev/null | sed -n 's/\\.yaml$//p')"
# What an argument can be that has no `choices`, by its name; for any other the shell offers files.
VALUES = {
    "profile": "$(command ls -d profiles/* 2>/dev/null)",
    "study": FILES.format("studies"),
    "machine": FILES.format("machines"),
    "dataset": f"{' '.join(registry.members('datasets'))} {FILES.format('datasets')}",
    "program": FILES.format("programs"),
    "before": (sides := f"{FILES.format('machines')} $(command ls results/kept 2>/dev/null)"),
    "after": sides,
}


def script(parser: argparse.ArgumentParser) -> str:
    """The function that the shell calls."""
    return SCRIPT.format(cases="\n".join(_cases(parser, "")))


def _cases(parser: argparse.ArgumentParser, line: str) -> Iterator[str]:
    """What may follow the words of `line`: first within a command of it and as an option's value, then else. Options
    are offered where a word begins with "-", or nothing else is allowed."""
    options, words = [], "$options"
    for action in parser._actions:
        if isinstance(action.choices, dict):
            for name, command in action.choices.items():
                yield from _cases(command, f"{line}{name} ")
        values = " ".join(action.choices or ()) or VALUES.get(action.dest, "")
        if not action.option_strings:
            words = values
            continue
        options.append(action.option_strings[-1])
        if action.nargs != 0:
            yield f'        "{line}"*"{options[-1]} ") words="{values}" ;;'
    yield f'        "{line}"*) options="{" ".join(options)}" words="{words}" ;;'
