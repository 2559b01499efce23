"""Slurm's formats of listings: `%.18i %j`, `JobID:20,State`; and the lines that they give."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from dlsched.cli.output.terminal import all_shown
from dlsched.core.errors import BadInput, not_known, shorten
from dlsched.rpc.columns import Column, texts

T = TypeVar("T")
LEAST_NAME = 8  # letters of a job's name on a narrow terminal
_LETTER = re.compile(r"%(\.?)(\d{0,4})([A-Za-z%])", re.ASCII)
_FIELD = re.compile(r"([A-Za-z_-]+)(?::(\.?)(\d*)(.*))?", re.ASCII | re.DOTALL)
USUAL_WIDTH = 20  # of a column of -O without one
_WORD = re.compile(r"([A-Za-z_-]+)(?:[:%]([.-]?)(\d+)?\w*)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Cell(Generic[T]):
    """One thing that a listing may show: its title, and its text for a row."""

    title: str
    text: Callable[[T], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(Generic[T]):
    """A cell with its width (0: as wide as its texts), or text between cells."""

    cell: Cell[T] | None = None
    between: str = ""
    width: int = 0
    right: bool = False


def moment(at: float | None, none: str = "Unknown") -> str:
    """Return a time as Slurm writes it, in the zone of this machine."""
    return none if at is None else time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at))


def by_letters(text: str, known: Mapping[str, Cell[T]], option: str = "-o") -> list[Part[T]]:
    """Read a format of `%` letters, as of squeue and sinfo.

    Raises:
        BadInput: a letter that is not known.
    """
    parts: list[Part[T]] = []
    at = 0
    for match in _LETTER.finditer(text):
        if match.start() > at:
            parts.append(Part(between=text[at : match.start()]))
        at = match.end()
        dot, width, letter = match.groups()
        if letter == "%":
            parts.append(Part(between="%"))
            continue
        if letter not in known:
            letters = " ".join(f"%{each}" for each in known)
            raise BadInput(f"{option}: %{letter} is not known; known: {letters}")
        parts.append(Part(cell=known[letter], width=int(width or 0), right=bool(dot)))
    rest = text[at:]
    if "%" in rest:
        raise BadInput(f"{option}: {shorten(rest)!r}: a letter is missing after %")
    return [*parts, Part(between=rest)] if rest else parts


def by_fields(text: str, known: Mapping[str, Cell[T]], option: str = "-O") -> list[Part[T]]:
    """Read names as of squeue and sinfo, `NAME[:[.][WIDTH][SUFFIX]]`: `JobID:.18 ,State:|`.

    Without a width and a suffix, a column has 20 letters; with a suffix alone, as many as it needs.

    Raises:
        BadInput: a name that is not known.
    """
    by_word = {name.lower(): cell for name, cell in known.items()}
    parts: list[Part[T]] = []
    for word in filter(str.strip, text.split(",")):
        match = _FIELD.fullmatch(word.lstrip())
        if match is None or match[1].lower() not in by_word:
            raise not_known(f"{option}:", word.strip(), known)
        name, dot, digits, suffix = match.groups()
        width = USUAL_WIDTH if digits is None else int(digits[:4] or 0)
        parts.append(Part(cell=by_word[name.lower()], width=width, right=bool(dot)))
        if suffix:
            parts.append(Part(between=suffix))
    return parts


def by_names(text: str, known: Mapping[str, Cell[T]], option: str) -> list[Part[T]]:
    """Read names joined by commas, with or without widths: `JobID:20`, `State%10`.

    Raises:
        BadInput: a name that is not known.
    """
    by_word = {name.lower(): cell for name, cell in known.items()}
    parts: list[Part[T]] = []
    for word in text.split(","):
        match = _WORD.fullmatch(word.strip())
        if match is None or match[1].lower() not in by_word:
            raise not_known(f"{option}:", word.strip(), known)
        width = int(match[3] or 0)
        if parts:
            parts.append(Part(between=" "))
        cell = by_word[match[1].lower()]
        parts.append(Part(cell=cell, width=width, right=match[2] == "."))
    return parts


def all_of(cells: Iterable[Cell[T]]) -> list[Part[T]]:
    """Every cell with bars between, as Slurm's `%all`."""
    parts: list[Part[T]] = []
    for cell in cells:
        parts += [Part(between="|"), Part(cell=cell)]
    return parts[1:]


def of_each(rows: Iterable[T]) -> tuple[Callable[[Callable[[T], str]], Column], int]:
    """Return what `lines` takes, for rows that exist one by one."""
    kept = list(rows)
    return lambda text: Column(list(map(text, kept))), len(kept)


def lines(
    parts: Sequence[Part[T]],
    of_rows: Callable[[Callable[[T], str]], Column],
    count: int,
    *,
    header: bool = True,
    separator: str | None = None,
    rule: bool = False,
    padded: bool = True,
    within: int | None = None,
) -> Iterator[str]:
    """Give the lines of a listing.

    Args:
        parts: of each line; a width cuts, as in Slurm.
        of_rows: returns for all rows what a cell's `text` returns for one.
        count: of the rows.
        header: whether the titles come first.
        separator: stands between cells, in place of widths and what is between them.
        rule: a line of dashes below the titles.
        padded: whether cells without a width are as wide as the widest; else as their texts.
        within: the width of the terminal: names of jobs are cut to fit it; None: they are not.
    """
    cells = [part for part in parts if part.cell is not None] if separator else parts
    columns = [of_rows(part.cell.text) if part.cell else Column([""]) for part in cells]
    columns = [each._replace(values=all_shown(each.values)) for each in columns]
    titles = [part.cell.title if part.cell else "" for part in cells]
    if separator is not None:
        pieces = [piece for each in columns for piece in (separator, each)]
        yield from [separator.join(titles)] if header else []
        yield from texts(pieces[1:], count)
        return
    widths = [
        part.width
        or max(len(title) if header else 0, max(map(len, each.values), default=0) if count else 0)
        for part, title, each in zip(cells, titles, columns, strict=True)
    ]

    if within is not None:
        beyond = sum(widths) + sum(len(part.between) for part in cells) - within
        of_name = (k for k, title in enumerate(titles) if title.upper() in ("NAME", "JOBNAME"))
        for k in of_name if beyond > 0 else ():
            widths[k] = max(widths[k] - beyond, min(widths[k], LEAST_NAME))

    def fitted(words: Sequence[Column]) -> list[Column]:
        made = []
        for part, column, width in zip(cells, words, widths, strict=True):
            if part.cell is None:
                made.append(Column([part.between]))
            elif not (padded or part.width):
                made.append(column)
            else:
                fit = str.rjust if part.right else str.ljust
                values = [fit(word[:width], width) for word in column.values]
                made.append(column._replace(values=values))
        return made

    def line(words: Sequence[str]) -> str:
        return "".join(texts(fitted([Column([word]) for word in words]), 1)).rstrip()

    if header:
        yield line(titles)
        if rule:
            yield line(["-" * width for width in widths])
    yield from map(str.rstrip, texts(fitted(columns), count))
