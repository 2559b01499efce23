"""The points of a job's metrics as a file: CSV, or event files of TensorBoard."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from dlsched.core.errors import BadInput, DlschedError

if TYPE_CHECKING:
    from dlsched.client.records import Metrics

_TITLES = ("metric", "time", "step", "value")


def check_target(target: str) -> None:
    """Refuse what cannot be written, before anything is asked of the daemon.

    Raises:
        BadInput: one line: what is wrong, and what would be right.
    """
    path = Path(target)
    if path.suffix == ".csv":
        if not path.parent.is_dir():
            raise BadInput(f"--export: {path.parent} is not a folder")
    elif path.suffix:
        raise BadInput(f"--export: {target}: .csv, or a folder without a dot, is expected")
    elif path.exists() and not path.is_dir():
        raise BadInput(f"--export: {target} is a file; a .csv or a folder is expected")
    elif find_spec("tensorboardX") is None:
        raise BadInput(
            "--export: event files of TensorBoard need tensorboardX (pip install "
            "'dlsched[tensorboard]'); a .csv needs nothing"
        )


def save_metrics(found: Metrics, target: str) -> int:
    """Write all points of a job; return how many there are.

    Raises:
        DlschedError: the file cannot be written.
    """
    if target.endswith(".csv"):
        _save_csv(found, target)
    else:
        _save_events(found, target)
    return sum(map(len, found.curves.values()))


def _save_csv(found: Metrics, target: str) -> None:
    import csv  # noqa: PLC0415
    import io  # noqa: PLC0415

    from dlsched.cli.output.file_output import plain_cell, save  # noqa: PLC0415
    from dlsched.cli.output.times import utc_text  # noqa: PLC0415

    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(_TITLES)
    for name, points in found.curves.items():
        title = plain_cell(name)
        table.writerows((title, utc_text(p.at), p.step, repr(p.value)) for p in points)
    save([text.getvalue().encode()], target)


def _save_events(found: Metrics, target: str) -> None:
    from tensorboardX import SummaryWriter  # noqa: PLC0415

    try:
        writer = SummaryWriter(target)
        for name, points in found.curves.items():
            for point in points:
                writer.add_scalar(name, point.value, point.step, walltime=point.at)
        writer.close()
    except OSError as error:
        raise DlschedError(f"{target}: can't be written ({error.strerror or error})") from None
