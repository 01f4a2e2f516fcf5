"""Old command names: each still runs its new command, after a note on standard error.

They are in no `--help` and in no list of commands: the words of the command line are replaced before the
command is looked up. The next version removes this file.
"""

from gpubloom.cli.output import echo

# The name of a group stands for all its commands.
OLD_NAMES = {
    "sample": "models generate",
    "eval": "models eval",
    "find-lr": "models find-lr",
    "export": "models export",
    "convert": "runs convert-checkpoint",
    "watch": "runs watch",
    "compare": "runs compare",
    "card": "runs card",
    "mirror": "runs mirror",
    "serve-metrics": "runs serve",
    "tensorboard": "runs tensorboard",
    "config schema": "runs config-schema",
    "data": "datasets",
    "data fetch": "datasets pull",
    "requirements": "scripts inspect",
    "submit": "scripts run",
    "offers": "providers offers",
    "serve": "server start",
    "worker": "server worker",
    "db": "server database",
    "machines": "server machines",
    "openapi": "server openapi",
    "login": "auth login",
    "logout": "auth logout",
}
# In words, the longest first: `data fetch` before `data`.
_OLD_WORDS = sorted(
    ((old.split(), new.split()) for old, new in OLD_NAMES.items()), key=lambda pair: -len(pair[0])
)


def with_new_name(words: list[str], *, quiet: bool = False) -> list[str]:
    """The same command line with the new name of its command. Unless `quiet`, a note tells the new name."""
    for old, new in _OLD_WORDS:
        if words[: len(old)] == old:
            if not quiet:
                echo(note(" ".join(old)), err=True)
            return [*new, *words[len(old) :]]
    return words


def note(old: str) -> str:
    """What an old name prints."""
    return f"note: `bloom {old}` is now `bloom {OLD_NAMES[old]}`; the next version removes the old name."
