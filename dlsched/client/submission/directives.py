"""`#DLSCHED` and `#SBATCH` lines of a script: its first block of comments, and nothing after it.

What is not known is refused by its name and line, all such lines at once; Slurm's options that
change nothing here are named in one note. `#DLSCHED` lines win over `#SBATCH` lines.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from dlsched.client.submission.options import BY_WORD, merged, put
from dlsched.client.submission.request import check_option
from dlsched.client.submission.texts import MAX_SCRIPT
from dlsched.core.errors import BadInput, shorten
from dlsched.jobs.field import Option

_MARKS = ("#DLSCHED", "#SBATCH")
# options of Slurm without effect here: how processes are bound, what is measured or printed, which
# of the nodes that fit are better
_WITHOUT_EFFECT = {
    *("--cpu-bind", "--mem-bind", "--wckey", "--hint"),
    *("--threads-per-core", "--cores-per-socket", "--sockets-per-node", "--extra-node-info", "-B"),
    *("--ntasks-per-core", "--ntasks-per-socket", "--acctg-freq", "--profile", "--cpu-freq"),
    *("--gpu-freq", "--core-spec", "-S", "--thread-spec", "--switches", "--bcast", "--delay-boot"),
    *("--mincpus", "--gres-flags", "--wait-all-nodes", "--priority", "--prefer", "--network"),
    *("--extra", "--segment"),
}
_FLAGS_WITHOUT_EFFECT = {  # a value comes after `=` only
    *("--no-kill", "-k", "--propagate", "--get-user-env", "--quiet", "-Q", "--verbose", "-v"),
    *("--overcommit", "-O", "--oversubscribe", "-s", "--share", "--spread-job", "--ignore-pbs"),
    *("--use-min-nodes", "--no-bell", "--bell", "--contiguous", "--oom-kill-step", "--stepmgr"),
    *("--spread-segments", "--resv-ports"),
}
# with which other jobs nodes are shared in Slurm; the job has whole nodes here
_EXCLUSIVE = ("user", "mcs", "topo")
_OF_ITSELF = {"nice": "100"}  # the value of an option of Slurm without one


@dataclass(frozen=True, slots=True, kw_only=True)
class Directives:
    """What a script says about itself, and what the user should know about that."""

    layer: dict[str, str]
    notes: tuple[str, ...] = ()


def read_directives(name: str, script: bytes, *, ignore_unknown: bool = False) -> Directives:
    """Read a script's directives; `ignore_unknown` leaves out unknown ones, each with a note.

    Raises:
        BadInput: no script at all, or a line that is not understood, as `name:line: what`.
    """
    _check_script(name, script)
    found: dict[str, dict[str, str]] = {mark: {} for mark in _MARKS}
    notes: list[str] = []
    unknown: list[str] = []
    wrong: list[str] = []
    idle: dict[str, None] = {}
    now = datetime.now().astimezone()
    for place, mark, text in _lines(name, script, notes):
        try:
            for each in parsed(
                f"{place}: {mark}", shlex.split(text, comments=True), is_slurm=mark == "#SBATCH"
            ):
                if each.option is not None:
                    what = f"{place}: {each.word}"
                    put(found[mark], each.option, what, each.value)
                    if each.option.kind != "flag" and not each.option.grammar:
                        check_option(each.option.key, what, each.value, now)
                elif not each.idle:
                    unknown.append(f"{place}: {mark} {shorten(each.word)}")
                if each.idle:
                    idle[each.idle] = None
        except BadInput as error:
            wrong.append(str(error))
        except ValueError as error:  # quotes without an end
            wrong.append(f"{place}: {mark}: {str(error).lower()}")
    if unknown and not ignore_unknown:
        which = "it" if len(unknown) == 1 else "them"
        wrong.append(
            f"{', '.join(unknown)}: not supported (--ignore-unknown-directives leaves {which} out)"
        )
    if wrong:
        raise BadInput("; ".join(wrong))
    notes += [f"{each}: left out" for each in unknown]
    notes += idle_note(name, idle)
    return Directives(layer=merged(*found.values()), notes=tuple(notes))


def idle_note(name: str, words: Iterable[str]) -> list[str]:
    """The note that names options without effect; nothing where there are none."""
    told = ", ".join(words)
    return [f"{name}: without effect here: {told}"] if told else []


def _check_script(name: str, script: bytes) -> None:
    if len(script) > MAX_SCRIPT:
        raise BadInput(f"{name}: {len(script)} bytes; at most {MAX_SCRIPT}")
    if not script.strip():
        raise BadInput(f"{name}: is empty")
    if b"\0" in script:
        raise BadInput(f"{name}: holds a NUL character; not a script")
    first = script.split(b"\n", 1)[0]
    if not first.startswith(b"#!") or not first[2:].strip():
        raise BadInput(f"{name}:1: the first line must name the interpreter (#!/bin/bash)")
    if first.endswith(b"\r"):
        raise BadInput(f"{name}:1: has DOS line ends; convert it first (sed -i 's/\\r$//')")


def _lines(name: str, script: bytes, notes: list[str]) -> Iterator[tuple[str, str, str]]:
    """Place, mark and rest of each directive."""
    block = True
    for number, line in enumerate(script.split(b"\n"), 1):
        block = block and (line.lstrip() == b"" or line.lstrip().startswith(b"#"))
        mark = next((each for each in _MARKS if line.startswith(each.encode())), None)
        rest = line[len(mark) :] if mark else b""
        if mark is None or (rest and not rest[:1].isspace()):
            continue
        place = f"{name}:{number}"
        if not block:
            notes.append(f"{place}: {mark} after the first command is not read")
            continue
        try:
            yield place, mark, rest.decode()
        except UnicodeDecodeError:
            raise BadInput(f"{place}: not valid UTF-8") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One option as it was written."""

    word: str
    option: Option | None  # None: it is not known
    value: str = ""
    idle: str = ""  # what of it has no effect here


def parsed(what: str, words: Sequence[str], *, is_slurm: bool) -> Iterator[Given]:
    """The options among words; `what` begins the errors.

    Raises:
        BadInput: a word is no option, or the value of a known option is missing or too much.
    """
    todo = list(words)
    while todo:
        if todo[0] in ("hetjob", "packjob") and is_slurm:
            raise BadInput(
                f"{what} {todo[0]}: heterogeneous jobs are not supported; "
                "submit each part as its own job"
            )
        if not todo[0].startswith("-"):
            raise BadInput(f"{what}: {shorten(todo[0])!r} is not an option")
        given = take_option(todo, is_slurm=is_slurm, what=f"{what.rpartition(': #')[0]}: ")
        yield given
        while given.option is None and not given.idle and todo and not todo[0].startswith("-"):
            del todo[0]  # the value of an option that is not known


def take_option(todo: list[str], *, is_slurm: bool, what: str = "") -> Given:
    """Take the option that comes first off a list of words; `what` begins the errors.

    Raises:
        BadInput: the value of a known option is missing, or it takes none.
    """
    word, equals, value, glued = _taken(todo.pop(0))
    option = BY_WORD.get(word)
    if option is None or (is_slurm and not option.slurm):
        idle = is_slurm and word in _WITHOUT_EFFECT
        if idle and not (equals or glued) and todo:
            value = todo.pop(0)
        is_idle = idle or (is_slurm and word in _FLAGS_WITHOUT_EFFECT)
        return Given(word=word, option=None, value=value, idle=word if is_idle else "")
    if option.kind == "flag":
        if is_slurm and option.key == "exclusive" and value in _EXCLUSIVE:
            return Given(word=word, option=option, value="yes", idle=f"{word}={value}")
        if glued or equals:
            raise BadInput(f"{what}{word}: takes no value")
        return Given(word=word, option=option, value="yes")
    if not equals and not glued:
        usual = _OF_ITSELF.get(option.name) if is_slurm else None
        if usual is not None and not (todo and todo[0].lstrip("-").isdecimal()):
            return Given(word=word, option=option, value=usual)
        if not todo or todo[0] == "--":
            raise BadInput(f"{what}{word}: needs a value")
        value = todo.pop(0)
    if is_slurm and option.key in ("output", "error"):
        from dlsched.client.submission.output_patterns import of_slurm  # noqa: PLC0415

        value = of_slurm(value)
    return Given(word=word, option=option, value=value)


def _taken(word: str) -> tuple[str, bool, str, bool]:
    """The option's word, whether `=` came, its value, and whether that was glued to a letter."""
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        return name, bool(equals), value, False
    if len(word) > 2 and word.startswith("-"):
        return word[:2], False, word[2:], True
    return word, False, "", False
