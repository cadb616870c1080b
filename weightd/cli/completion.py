"""``weightd completion SHELL``: completions of commands, flags and keys."""

from __future__ import annotations

import argparse
import importlib
from typing import Final

from weightd.cli.exits import Exit
from weightd.cli.output import say

SHELLS: Final = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help="bash, zsh or fish")
    parser.epilog = (
        "bash and zsh: source <(weightd completion bash), in the file that the shell begins with; "
        "fish: weightd completion fish >~/.config/fish/completions/weightd.fish"
    )


def run(arguments: argparse.Namespace) -> int:
    script = {"bash": _bash, "zsh": _zsh, "fish": _fish}[arguments.shell]
    say(script(flags_of_all()).rstrip("\n"))
    return Exit.OK


def flags_of_all() -> dict[str, list[str]]:
    """Every command and its flags, as its parser has them."""
    from weightd.cli.main import COMMANDS
    from weightd.cli.parsing import Parser

    found = {}
    for name in COMMANDS:
        parser = Parser(prog=name)
        importlib.import_module(f"weightd.cli.{name}").add_arguments(parser)
        found[name] = parser.flags()
    return found


_KEYED: Final = "run get put fetch pin unpin rm ls warm verify label"
"""The commands that take the key of a model."""

_FILED: Final = "run put adopt fetch serve"
"""The commands that take files, or commands, besides."""

_BASH: Final = """\
_weightd() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" command="${{COMP_WORDS[1]}}" flags=
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{commands}" -- "$word"))
        return
    fi
    case "$command ${{COMP_LINE:0:COMP_POINT}}" in
    "run "*" -- "*) return ;;
    esac
    case "$command" in
{cases}
    esac
    case "$word" in
    -*) COMPREPLY=($(compgen -W "$flags" -- "$word")) ;;
    *)
        case " {keyed} " in
        *" $command "*)
            # An @ parts words for bash: what stands before it is typed already.
            word="${{COMP_LINE:0:COMP_POINT}}" word="${{word##* }}"
            COMPREPLY=($(compgen -W "$(weightd ls -q 2>/dev/null)" -- "$word"))
            case "$word" in *@*) COMPREPLY=("${{COMPREPLY[@]#"${{word%@*}}@"}}") ;; esac
            ;;
        esac
        [ "$command" != completion ] || COMPREPLY=($(compgen -W "{shells}" -- "$word"))
        ;;
    esac
}}
complete -o default -F _weightd weightd
"""


def _bash(flags: dict[str, list[str]]) -> str:
    cases = "\n".join(f'    {name}) flags="{" ".join(own)}" ;;' for name, own in flags.items())
    return _BASH.format(
        commands=" ".join(flags), cases=cases, keyed=_KEYED, shells=" ".join(SHELLS)
    )


_ZSH: Final = """\
_weightd() {{
    local -a flags
    if (( CURRENT == 2 )); then
        compadd -- {commands}
        return
    fi
    case "$words[2]" in
{cases}
    esac
    case "$words[CURRENT]" in
    -*) compadd -- $flags ;;
    *)
        case " {keyed} " in
        *" $words[2] "*) compadd -- ${{(f)"$(weightd ls -q 2>/dev/null)"}} ;;
        esac
        case " {filed} " in
        *" $words[2] "*) _default ;;
        esac
        [[ "$words[2]" != completion ]] || compadd -- {shells}
        ;;
    esac
}}
(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit }}
compdef _weightd weightd
"""


def _zsh(flags: dict[str, list[str]]) -> str:
    cases = "\n".join(f"    {name}) flags=({' '.join(own)}) ;;" for name, own in flags.items())
    return _ZSH.format(
        commands=" ".join(flags), cases=cases, keyed=_KEYED, filed=_FILED, shells=" ".join(SHELLS)
    )


def _fish(flags: dict[str, list[str]]) -> str:
    from weightd.cli.main import COMMANDS

    lines = ["complete -c weightd -f"]
    for name, does in COMMANDS.items():
        quoted = does.replace("'", "\\'")
        lines.append(f"complete -c weightd -n __fish_use_subcommand -a {name} -d '{quoted}'")
    for name, own in flags.items():
        seen = f"complete -c weightd -n '__fish_seen_subcommand_from {name}' -l "
        lines += [seen + flag[2:] for flag in own if flag.startswith("--")]
    lines.append(
        f"complete -c weightd -n '__fish_seen_subcommand_from {_KEYED}' "
        "-a '(weightd ls -q 2>/dev/null)'"
    )
    lines.append(f"complete -c weightd -n '__fish_seen_subcommand_from {_FILED}' -F")
    lines.append(
        f"complete -c weightd -n '__fish_seen_subcommand_from completion' -a '{' '.join(SHELLS)}'"
    )
    return "\n".join(lines)
