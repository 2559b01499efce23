"""Where replicas find the leader of their service: a file of the service's user, with a secret."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from dlsched.system.files import read_if_there, replace_file

NAME = "service.json"  # in the leader's folder, which all its runs share


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendezvous:
    """The address of the leader, and the word by which it knows its replicas."""

    host: str
    port: int
    secret: str

    def write(self, folder: Path) -> None:
        """Write it, for the user alone."""
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(str(folder / NAME), json.dumps(asdict(self)).encode(), mode=0o600)

    @classmethod
    def read(cls, folder: Path) -> Rendezvous | None:
        """Read it; None where no leader has written one."""
        found = read_if_there(str(folder / NAME))
        return None if found is None else cls(**json.loads(found))
