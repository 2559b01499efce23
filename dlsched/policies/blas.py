"""How scipy's linear algebra is loaded: with one thread.

Its matrices here have fewer than a hundred numbers. Several threads would only wait for each other
over them: on two busy processors a fit of seven numbers then takes twenty times as much CPU time.
The libraries read their number of threads once, when they are loaded, from the environment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "OMP_NUM_THREADS")


@contextmanager
def one_thread() -> Iterator[None]:
    """Libraries that are loaded within, and processes that are started within, use one thread.

    A number that the user has set stays, and afterwards the environment is as before.
    """
    unset = [name for name in THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(unset, "1"))
    try:
        yield
    finally:
        for name in unset:
            del os.environ[name]
