"""Files of trained networks that an option may name: arrays and a header, without code.

A file is numpy's `.npz` with the arrays `weight_0`, `bias_0`, … and a header as JSON. Nothing in it
is executed when it is read (no pickles).
"""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from dlsched.core.errors import BadInput
from dlsched.policies.learning.network import Network

FORMAT = "dlsched.network/1"
LARGEST = 64 << 20  # bytes


def network_bytes(network: Network) -> bytes:
    """A network as the content of a file; equal networks give equal bytes."""
    header = {
        "format": FORMAT,
        "schema": network.schema,
        "layers": len(network.weights),
        "settings": network.settings,
    }
    text = json.dumps(header, sort_keys=True).encode()
    arrays: dict[str, Any] = {"header": np.frombuffer(text, np.uint8)}
    for number, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        arrays[f"weight_{number}"], arrays[f"bias_{number}"] = weight, bias
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **arrays)
    return content.getvalue()


def read_network(name: str) -> Network:
    """Read a network.

    Raises:
        BadInput: the file cannot be read, is no network, or is of another version of the format.
    """
    try:
        content = _read(Path(name))
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            header = json.loads(arrays["header"].tobytes())
            if header["format"] != FORMAT:
                raise BadInput(
                    f"{name}: a network of format {header['format']!r}; this version of dlsched "
                    f"reads {FORMAT}"
                )
            layers = range(int(header["layers"]))
            weights = [arrays[f"weight_{k}"].astype(np.float32, copy=False) for k in layers]
            biases = [arrays[f"bias_{k}"].astype(np.float32, copy=False) for k in layers]
            schema, settings = str(header["schema"]), dict(header["settings"])
    except OSError as error:
        raise BadInput(f"{name}: cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        raise BadInput(f"{name}: is no trained network; dlsched train makes one") from None
    found = Network(name, schema, weights, biases, settings)
    _check(found)
    return found


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise BadInput(f"{path}: more than {LARGEST >> 20} MiB")
    return content


def _check(network: Network) -> None:
    """See that layers follow each other and hold numbers."""
    before = network.inputs if network.weights and network.weights[0].ndim == 2 else -1
    for weight, bias in zip(network.weights, network.biases, strict=True):
        whole = weight.ndim == 2 and weight.shape[0] == before and bias.shape == weight.shape[1:]
        if not whole or not (np.isfinite(weight).all() and np.isfinite(bias).all()):
            break
        before = weight.shape[1]
    else:
        if network.weights:
            return
    raise BadInput(f"{network.name}: its layers do not fit together or are not finite")
