"""`lacuna completion`: a script by which a shell completes commands and options.

The words are written into the script, so that completing starts no program.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from lacuna.cli import COMMANDS
from lacuna.cli.options import Args, Parser
from state.errors import LacunaError

BASH = """\
_lacuna() {{
    local words=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="{commands}"
    else
        case "${{COMP_WORDS[1]}}" in
{cases}
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _lacuna lacuna
"""
ZSH = "autoload -U +X bashcompinit && bashcompinit\n" + BASH


def declare(command: Parser) -> None:
    """Describe the command and add its options."""
    command.description = "Print a script by which a shell completes commands and options."
    command.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell that reads the script")


def run(args: Args) -> int:
    """Print the script."""
    words = {name: sorted(words_of(parser)) for name, parser in _parsers(args.parser)}
    print("\n".join(_fish(words)) if args.shell == "fish" else _bash(words, BASH if args.shell == "bash" else ZSH))
    return 0


def _parsers(top: Parser) -> Iterator[tuple[str, Parser]]:
    """Yield the parser of every command; one whose extra is not installed has nothing to complete."""
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, parser in action.choices.items():
                try:
                    parser.declare()
                except LacunaError:
                    continue
                yield name, parser


def words_of(parser: Parser) -> set[str]:
    """Return the options of a parser and of its tasks, and the names of those."""
    words = {option for action in parser._actions for option in action.option_strings if option.startswith("--")}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            words |= set(action.choices).union(*map(words_of, action.choices.values()))
    return words


def _bash(words: dict[str, list[str]], script: str) -> str:
    cases = (f'            {name}) words="{" ".join(options)}" ;;' for name, options in words.items())
    return script.format(commands=" ".join(COMMANDS), cases="\n".join(cases))


def _fish(words: dict[str, list[str]]) -> Iterator[str]:
    for name, command in COMMANDS.items():
        yield f"complete -c lacuna -n __fish_use_subcommand -a {name} -d {_quoted(command.about)}"
    for name, options in words.items():
        for option in options:
            kind = f"-l {option[2:]}" if option.startswith("--") else f"-a {option}"
            yield f"complete -c lacuna -n '__fish_seen_subcommand_from {name}' {kind}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "\\'") + "'"
