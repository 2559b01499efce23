"""What a job says of its container, as far as the client can tell."""

from __future__ import annotations

from dlsched.core.errors import BadInput
from dlsched.jobs.mounts import read_mounts


def check_container(image: str, mounts: str) -> None:
    """Refuse what is no image or no list of mounts.

    Raises:
        BadInput: naming the option.
    """
    if image.startswith("-"):
        raise BadInput(f"--container: {image!r:.60} is not an image")
    try:
        listed = read_mounts(mounts)
    except ValueError as error:
        raise BadInput(f"--container-mounts: {error}") from None
    if listed and not image:
        raise BadInput("--container-mounts: there is no --container to mount them in")
