"""What users are told of a checkpoint that could not be written."""

from __future__ import annotations

_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))


def unsaved_text(
    step: int, why: str, in_a_row: int, newest_step: int | None, newest_age_s: float
) -> str:
    """In one line: why there is no checkpoint, and what the job has instead.

    Args:
        step: after which there is none.
        why: in words; empty: they are not for the reader.
        in_a_row: how many have failed one after the other.
        newest_step: of the newest checkpoint that there is; None: there is none.
        newest_age_s: seconds since that was written.
    """
    parts = [f"checkpoint at step {step}: {why or 'it could not be written'}"]
    if in_a_row > 1:
        parts.append(f"{in_a_row:,} in a row have failed")
    if newest_step is None:
        parts.append("there is none before it")
    else:
        parts.append(f"the newest one is of step {newest_step}, {_age(newest_age_s)} old")
    return "; ".join(parts)


def _age(seconds: float) -> str:
    size, name = next((each for each in _UNITS if seconds >= 2 * each[0]), _UNITS[-1])
    return f"{max(0.0, seconds) // size:.0f} {name}"
