"""Layers of options: what the command line, the caller's variables and a script's directives say.

A layer maps keys of the table of job fields to texts; flags are the text `yes` or `no`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from dlsched.client.submission.gpus import parse_gres
from dlsched.client.submission.texts import as_flag
from dlsched.client.submission.values import word_of
from dlsched.core.errors import BadInput, shorten
from dlsched.jobs.field import Option
from dlsched.jobs.fields import OPTIONS

Layer = Mapping[str, str]
PREFIX = "DLSCHED_SUBMIT_"

BY_WORD: dict[str, Option] = {word: option for option in OPTIONS for word in option.words}
# As columns of a file and arguments of a function: every long word, and the keys.
BY_NAME: dict[str, Option] = {option.key: option for option in reversed(OPTIONS)} | {
    word[2:].replace("-", "_"): option for word, option in BY_WORD.items() if word[:2] == "--"
}
# Given by the nearer layer, all of these are: `--gpus 4` is not to meet a script's `--gres=gpu:8`.
_TOGETHER = (
    {"gpus", "gpus_per_node", "gpus_per_task"},
    {"mem", "mem_per_cpu", "mem_per_gpu"},
    {"cpus", "cpus_per_gpu", "cpus_per_task"},
    {"priority", "nice"},
)
_GROUP_OF = {key: group for group in _TOGETHER for key in group}
_YES_OR_NO = ("yes", "no")
# flags that say a word of another option: --best-effort is --deadline-kind best-effort
_WORD_FLAGS = {
    option.key: option
    for option in OPTIONS
    if option.kind == "flag" and option.says not in _YES_OR_NO
}
_NOT_OPTIONS = {"DIR", "HOST"}  # what a job is told of its submission


def merged(*layers: Layer) -> dict[str, str]:
    """One layer of several, the nearest first; options that say one thing go together."""
    result: dict[str, str] = {}
    for layer in layers:
        taken = {key for name in result for key in _GROUP_OF.get(name, ())}
        for key, text in layer.items():
            if key not in taken and key not in result:
                result[key] = text
    return result


def from_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """The layer of `DLSCHED_SUBMIT_…` variables, such as DLSCHED_SUBMIT_PARTITION.

    Raises:
        BadInput: a variable that names no option, or a flag that is neither yes nor no.
    """
    found: dict[str, str] = {}
    for variable, text in variables.items():
        if not variable.startswith(PREFIX) or variable[len(PREFIX) :] in _NOT_OPTIONS:
            continue
        option = BY_NAME.get(variable[len(PREFIX) :].lower())
        if option is None:
            raise BadInput(f"environment variable {variable}: there is no such option of submit")
        put(found, option, f"environment variable {variable}", text)
    return found


def put(layer: dict[str, str], option: Option, what: str, text: str) -> None:
    """Enter an option's text into a layer, as the option wants it.

    Raises:
        BadInput: a flag that is neither yes nor no, a text that cannot be converted, or one that
            contradicts a flag of the same layer.
    """
    if option.kind == "flag":
        if as_flag(what, text) == "yes":
            _refuse_contradiction(layer, option, what, option.says)
            layer[option.key] = option.says
        elif option.says in _YES_OR_NO:
            layer[option.key] = "no" if option.says == "yes" else "yes"
        return
    _refuse_contradiction(layer, option, what, text)
    if option.grammar == "gres":  # as `--gpus-per-node` has it
        text = parse_gres(what, text).text
    if option.kind == "many" and option.key in layer:
        text = f"{layer[option.key]}\n{text}"
    layer[option.key] = text


def put_typed(layer: dict[str, str], option: Option, word: str, text: str) -> None:
    """Enter an option of a command line, which was typed as `word`.

    Its text is checked at once where errors would later name another word: `--notify` for what
    `--mail-type` has said.

    Raises:
        BadInput: as `put` does, or the text is malformed.
    """
    put(layer, option, word, text)
    is_plain = option.kind == "value" and not option.grammar
    if text and is_plain and word_of(option.key) not in option.words:
        from dlsched.client.submission.request import check_option  # noqa: PLC0415

        check_option(option.key, word, text, datetime.now().astimezone())


def _refuse_contradiction(layer: Layer, option: Option, what: str, text: str) -> None:
    """Refuse a flag that says a word beside an option that says another one, in either order."""
    flag, before = _WORD_FLAGS.get(option.key), layer.get(option.key)
    if flag is None or before is None or before.strip().lower() == text.strip().lower():
        return
    if option is flag:
        raise BadInput(f"{what}: not together with --{option.key.replace('_', '-')} {before}")
    if before == flag.says:
        raise BadInput(f"{what} {shorten(text)}: not together with {flag.words[-1]}")
