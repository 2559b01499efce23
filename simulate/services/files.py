"""Services from a TOML file.

    [[services]]
    name = "ranker"
    sla_s = 0.2                       # share of the requests within so many seconds
    share = 0.99
    service_time = { dist = "lognormal", mu = -2.8, sigma = 0.4 }
    rates = "ranker.csv"              # time,rate: requests per second from a time on; or a list
    period_s = 86400                  # the rates come again after a day
    most = 16

`docs/services.md` has all keys.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from dlsched.core.cluster.description import Cluster
from dlsched.core.documents import named_tables, table
from dlsched.core.errors import BadInput, shorten
from dlsched.policies.services.service_times import service_time
from dlsched.policies.services.sizing import Sla
from simulate.bounded_tables import FROM_0, read_rows
from simulate.document_files import read_toml
from simulate.services.description import Requests, Service

_WHOLE = {"least": 1, "most": 1, "gpus": 1, "reserve": 0, "windows": 1, "gateways": 1}  # at least
_REAL = {"setup_s": 0.0, "idle_s": 0.0, "burst": 1.0, "window_s": 0.1}  # at least
_OTHER = ("name", "sla_s", "share", "service_time", "rates", "period_s", "noise")
_MOST = 1_000_000  # of any whole number


def read_services(path: Path, cluster: Cluster) -> tuple[Service, ...]:
    """Read the services of a file.

    Raises:
        BadInput: one line with the file, the service, and what would be right.
    """
    document = table(str(path), read_toml(path), ("services",))
    listed = document.get("services")
    described = named_tables(str(path), "service", listed, (*_OTHER, *_WHOLE, *_REAL), most=_MOST)
    found: list[Service] = []
    for name, (where, entry) in described.items():
        try:
            service = _service(name, entry, path)
        except BadInput as error:
            raise BadInput(f"{where}: {error}") from None
        if service.gpus > cluster.largest_node:
            raise BadInput(
                f"{where}: a replica with {service.gpus} GPUs; the largest node has "
                f"{cluster.largest_node}"
            )
        found.append(service)
    always = sum(each.least * each.gpus for each in found)
    if always > cluster.total_gpus:
        raise BadInput(
            f"{path}: replicas that are always warm need {always} GPUs, the cluster has "
            f"{cluster.total_gpus}"
        )
    return tuple(found)


def _service(name: str, entry: Mapping[str, Any], path: Path) -> Service:
    for key in ("sla_s", "share", "service_time", "rates", "most"):
        if key not in entry:
            raise BadInput(f"{key} is missing")
    if not isinstance(entry["service_time"], dict):
        raise BadInput('service_time must be a table, as { dist = "exponential", mean = 0.1 }')
    settings: dict[str, Any] = {}
    for key, least in _WHOLE.items():
        if key in entry:
            settings[key] = _whole(key, entry[key], least)
    for key, low in _REAL.items():
        if key in entry:
            settings[key] = _real(key, entry[key], low)
    if settings["most"] < settings.get("least", 1):
        raise BadInput(f"most is {settings['most']}, below least, {settings.get('least', 1)}")
    if not isinstance(entry.get("noise", False), bool):
        raise BadInput("noise must be true or false")
    period = None if "period_s" not in entry else _real("period_s", entry["period_s"], 1.0)
    return Service(
        name=name,
        sla=Sla(
            within_s=_real("sla_s", entry["sla_s"], 0.0), share=_real("share", entry["share"], 0.0)
        ),
        service_time=service_time(entry["service_time"]),
        requests=_requests(entry["rates"], period, path),
        noise=entry.get("noise", False),
        **settings,
    )


def _requests(given: object, period_s: float | None, path: Path) -> Requests:
    if isinstance(given, str):
        points = _points_of(path.parent / given)
    elif isinstance(given, list) and all(isinstance(p, list) and len(p) == 2 for p in given):
        points = [(_real("rates: time", t, 0.0), _real("rates: rate", r, 0.0)) for t, r in given]
    else:
        raise BadInput("rates must be a file, or pairs [time, rate]")
    times = [time for time, _ in points]
    if not times or times[0] != 0 or any(a >= b for a, b in pairwise(times)):
        raise BadInput("rates: times must ascend and begin with 0")
    if period_s is not None and times[-1] >= period_s:
        raise BadInput(f"rates: a time of {times[-1]:g} s is not below period_s, {period_s:g}")
    return Requests(times=tuple(times), rates=tuple(rate for _, rate in points), period_s=period_s)


def _points_of(file: Path) -> list[tuple[float, float]]:
    try:
        rows = read_rows(
            file,
            {"time": FROM_0, "rate": FROM_0},
            required=("time", "rate"),
            unique=(),
            nouns="rates",
        )
    except BadInput as error:
        raise BadInput(f"rates: {error}") from None
    return list(zip(rows.number("time").tolist(), rows.number("rate").tolist(), strict=True))


def _whole(name: str, value: object, least: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= _MOST:
        return value
    raise BadInput(f"{name} must be a whole number from {least} on, not {shorten(repr(value))}")


def _real(name: str, value: object, least: float) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and least <= value < math.inf:
        return float(value)
    raise BadInput(f"{name} must be a number from {least:g} on, not {shorten(repr(value))}")
