"""The small grammars inside `sacct` fields: TRES lists, GRES, times, memory, array ids.

Every function returns None (or NaN) for "not known" and raises ValueError, with what would be
right, for text outside its grammar.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache

from dlsched.core.sums import ordered_sum

_NOTHING = frozenset({"", "(null)", "N/A", "none"})
_NO_LIMIT = frozenset({"UNLIMITED", "Partition_Limit", "INVALID", "Unknown", *_NOTHING})
_SPAN = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(\.\d+)?")
_DAYS_HOURS = re.compile(r"(\d+)-(\d+)")
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)B?")
_UNITS_GB = {"K": 1 / 1024**2, "M": 1 / 1024, "": 1 / 1024, "G": 1.0, "T": 1024.0, "P": 1024.0**2}
_GRES = re.compile(r"(?:gres[:/])?gpu(?::([A-Za-z][\w.-]*))?(?:[:=](\d+))?(?:\(.*\))?")
_ELEMENTS = re.compile(r"(\d+)_\[([\d,:-]+)(?:%\d+)?\]")
_MOST_ELEMENTS = 4_000_000  # Slurm's own ceiling on array sizes


@lru_cache(maxsize=65_536)
def tres_count(tres: str, name: str) -> float:
    """Return a count out of `cpu=8,mem=64G,node=2,gres/gpu=8`; NaN if the list hasn't got it."""
    for item in tres.split(","):
        key, _, value = item.partition("=")
        if key.strip() == name:
            return float(value)
    return math.nan


@lru_cache(maxsize=65_536)
def tres_gpus(tres: str) -> tuple[float, str]:
    """Return the job's GPUs and their type out of a TRES list; NaN for an empty list.

    The counts are totals over all nodes. `gres/gpu=8,gres/gpu:a100=8` names the same 8 twice.
    """
    if tres in _NOTHING:
        return math.nan, ""
    total, typed = math.nan, {}
    for item in tres.split(","):
        key, _, value = item.strip().partition("=")
        if key == "gres/gpu":
            total = float(value)
        elif key.startswith("gres/gpu:"):
            typed[key.removeprefix("gres/gpu:")] = float(value)
    if math.isnan(total):
        total = ordered_sum(typed.values())
    return total, "+".join(typed)


@lru_cache(maxsize=65_536)
def gres_gpus(gres: str) -> tuple[float, str]:
    """Return GPUs and type *per node* out of `gpu:v100:2` or `gpu:2,shard:1`, NaN for nothing."""
    if gres in _NOTHING:
        return math.nan, ""
    total, types = 0.0, []
    for item in re.split(r",(?![^(]*\))", gres):
        if not re.match(r"(gres[:/])?gpu\b", item.strip()):
            continue
        match = _GRES.fullmatch(item.strip())
        if match is None:
            raise ValueError(f"{gres!r} is no GRES list like gpu:v100:2")
        total += float(match[2] or 1)
        if match[1]:
            types.append(match[1])
    return total, "+".join(types)


@lru_cache(maxsize=65_536)
def span_seconds(text: str) -> float:
    """Return seconds of `[D-][HH:]MM:SS`, `D-HH` or plain minutes; NaN for "no limit"."""
    text = text.strip()
    if text in _NO_LIMIT:
        return math.nan
    if match := _SPAN.fullmatch(text):
        days, hours, minutes, seconds, fraction = match.groups()
        whole = int(days or 0) * 86_400 + int(hours or 0) * 3_600 + int(minutes) * 60 + int(seconds)
        return whole + float(fraction or 0)
    if match := _DAYS_HOURS.fullmatch(text):
        return int(match[1]) * 86_400.0 + int(match[2]) * 3_600
    if text.isdigit():
        return int(text) * 60.0
    raise ValueError(f"{text!r} is no time span like 1-02:03:04")


@lru_cache(maxsize=65_536)
def memory_gb(text: str) -> float:
    """Return GB (of 1024³ bytes) of `64G`, `512M`, `4096` (MB); NaN for nothing."""
    if text in _NOTHING:
        return math.nan
    match = _MEMORY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no amount of memory like 64G")
    return float(match[1]) * _UNITS_GB[match[2]]


def tres_memory_gb(tres: str) -> float:
    """Return the memory in a TRES list, in GB; NaN if it names none."""
    for item in tres.split(","):
        key, _, value = item.strip().partition("=")
        if key == "mem":
            return memory_gb(value)
    return math.nan


def requested_memory(text: str) -> tuple[float, str]:
    """Return GB of a `ReqMem` field and per what: "c" (CPU), "n" (node) or "" (the job)."""
    if text.endswith(("c", "n")):
        return memory_gb(text[:-1]), text[-1]
    return memory_gb(text), ""


def count_of(text: str) -> float:
    """Return a count; sacct shortens large ones (12K)."""
    if text in _NOTHING or text == "Unknown":
        return math.nan
    try:
        return float(text[:-1]) * 1000 if text.endswith("K") else float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no count") from None


def limit_minutes_s(text: str) -> float:
    """Return seconds of a limit in minutes (`TimelimitRaw`); NaN for no limit."""
    return math.nan if text in _NO_LIMIT else count_of(text) * 60


def array_elements(job_id: str) -> list[str]:
    """Unfold `123_[1-3,7%2]` into its elements' ids; any other id is its own only element."""
    if "[" not in job_id:
        return [job_id]
    match = _ELEMENTS.fullmatch(job_id)
    if match is None:
        raise ValueError(f"{job_id!r} is no list of array elements like 123_[1-5,9%2]")
    numbers: list[int] = []
    for part in match[2].split(","):
        ends, _, step = part.partition(":")
        first, _, last = ends.partition("-")
        span = range(int(first), int(last or first) + 1, int(step or 1))
        if len(numbers) + len(span) > _MOST_ELEMENTS:
            raise ValueError(f"{job_id!r} has more than {_MOST_ELEMENTS} elements")
        numbers.extend(span)
    return [f"{match[1]}_{number}" for number in numbers]
