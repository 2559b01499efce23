"""The clock on Philly's wall: US Pacific time, written without a zone.

Differences are taken on the wall, as everyone who published figures of this trace did. The night of
2017-11-05, when 01:00-02:00 came twice, is therefore an hour short.
"""

from __future__ import annotations

__all__ = ["PHILLY_ZONE", "philly_utc_offset"]

PHILLY_ZONE = "America/Los_Angeles"
# 2017-11-05 02:00 on the wall. The trace lies within 2017-08..12, so one change is all it sees,
# and no time-zone database has to be there.
_CLOCK_SET_BACK = 1_509_847_200.0
_SUMMER_S, _WINTER_S = -7 * 3600.0, -8 * 3600.0


def philly_utc_offset(wall_s: float) -> float:
    """Return the offset of UTC [s] at a wall time given as seconds since 1970 on the wall.

    In the hour that came twice the first pass is meant.
    """
    return _SUMMER_S if wall_s < _CLOCK_SET_BACK else _WINTER_S
