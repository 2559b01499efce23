"""What is shown of jobs and their past: short transactions, pages by key, plain frozen values."""

from __future__ import annotations

from sqlalchemy import Engine


class Reads:
    """Reading."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
