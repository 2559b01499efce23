"""Files of numbers that an option may name: one a line, an optional header, plain or gzip."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

from dlsched.core.errors import BadInput

LARGEST = 64 << 20  # bytes, unpacked


def listed_numbers(
    text: str, why: str = "not a comma-separated list of numbers"
) -> tuple[float, ...]:
    """Read numbers with commas between them.

    Raises:
        BadInput: they are none; `why` is added to the text.
    """
    try:
        return tuple(float(item) for item in text.split(","))
    except ValueError:
        raise BadInput(f"{text}: {why}") from None


def read_numbers(name: str) -> tuple[float, ...]:
    """Read a file of numbers, or a comma-separated list of them.

    Raises:
        BadInput: the file cannot be read or holds something else; the message names the line.
    """
    path = Path(name)
    if not path.exists():
        return listed_numbers(name, "no such file, nor a comma-separated list of numbers")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise BadInput(f"{name}: more than {LARGEST >> 20} MiB of numbers")
        texts = data.decode().splitlines()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise BadInput(f"{name}: cannot be read: {error}") from None
    numbers: list[float] = []
    for number, text in enumerate(texts, 1):
        if not text.strip():
            continue
        try:
            value = float(text)
        except ValueError:
            if number == 1:
                continue  # the header
            raise BadInput(f"{name}:{number}: {text.strip()!r} is not a number") from None
        if not math.isfinite(value):
            raise BadInput(f"{name}:{number}: {text.strip()!r} is not a finite number")
        numbers.append(value)
    if not numbers:
        raise BadInput(f"{name}: holds no numbers")
    return tuple(numbers)
