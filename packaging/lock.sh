#!/usr/bin/env bash
# Write packaging/constraints.txt anew: every package that a cluster needs, with its hashes.
# Needs uv (https://docs.astral.sh/uv/) and a package index.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
UV_CUSTOM_COMPILE_COMMAND="packaging/lock.sh" uv pip compile pyproject.toml --extra live \
    --universal --python-version 3.11 --generate-hashes --no-annotate --quiet \
    --output-file packaging/constraints.txt
