"""Text files as people keep them: plain or gzip, with or without a byte order mark."""

from __future__ import annotations

import csv
import gzip
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TextIO

from dlsched.core.errors import BadInput

LONGEST_LINE = 100_000  # characters; a row of any known log has a few hundred

UNPACKED_RATIO = 200  # of unpacked to packed bytes; logs have 5 to 30
UNPACKED_FREELY = 64 << 20  # bytes that any file may unpack to
CHUNK = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_SUFFIXES = (".gz", ".csv", ".parquet", ".json", ".txt")


@lru_cache(maxsize=64)
def _check_unpacked(path: Path, size: int, _changed: tuple[int, ...]) -> None:
    """Refuse a gzip file that unpacks to far more than any log, before any line is parsed.

    Parsing costs a hundred times as much as unpacking. A file that has not changed is looked at
    once.

    Raises:
        BadInput: there are more bytes than its size allows.
    """
    most = max(UNPACKED_FREELY, UNPACKED_RATIO * size)
    with gzip.open(path, "rb") as file:
        while file.read1(CHUNK):
            if file.tell() > most:
                raise BadInput(
                    f"{path}: unpacks to more than {UNPACKED_RATIO} times its size, as no log does"
                )


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """Open a UTF-8 text, gzip or not (told by content), lines kept as they end.

    Raises:
        BadInput: for whatever the file's bytes do wrong, also later while it is being read.
    """
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == _GZIP_MAGIC
            raw.seek(0)
            if packed:
                now = os.fstat(raw.fileno())
                _check_unpacked(path, now.st_size, (now.st_dev, now.st_ino, now.st_mtime_ns))
            plain = gzip.GzipFile(fileobj=raw, mode="rb") if packed else raw
            # utf-8-sig swallows the mark that spreadsheet programs write.
            with io.TextIOWrapper(plain, encoding="utf-8-sig", newline="") as text:
                yield text
    except EOFError:
        raise BadInput(f"{path}: the gzip file ends too early; copy it again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise BadInput(f"{path}: damaged gzip file ({error}); copy it again") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not UTF-8 text (byte {error.start} of a block)") from None
    except csv.Error as error:
        raise BadInput(f"{path}: not a table of separated values ({error})") from None
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except OSError as error:
        raise BadInput(f"{path}: can't be read ({error.strerror or error})") from None


def lines_of(path: Path, text: TextIO) -> Iterator[str]:
    """Yield the lines of a text, never holding an endless one in memory.

    Raises:
        BadInput: a line is longer than any row can be.
    """
    number = 0
    while line := text.readline(LONGEST_LINE):
        number += 1
        if len(line) >= LONGEST_LINE and not line.endswith("\n"):
            raise BadInput(
                f"{path}:{number}: the line has more than {LONGEST_LINE:,} characters; "
                "a trace has one job a line"
            )
        yield line


def first_line(path: Path) -> str:
    """Return the first line that isn't blank, without its ending; "" for an empty file.

    Raises:
        BadInput: it is longer than any row can be, or the file cannot be read.
    """
    with open_text(path) as text:
        for line in lines_of(path, text):
            if line.strip():
                return line.strip("\r\n")
    return ""


def stem_of(path: Path) -> str:
    """Return what to call a trace in tables: the file's name without its known endings."""
    name = path.name
    while (shorter := name.removesuffix(next(filter(name.endswith, _SUFFIXES), ""))) not in (
        "",
        name,
    ):
        name = shorter
    return name
