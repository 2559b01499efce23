#!/usr/bin/env bash
# Generates dlsched/rpc/v1 from proto/dlsched/v1; needs grpcio-tools. PYTHON names the interpreter.
#
#     bash proto/generate.sh [TARGET]
#
# TARGET is the folder that gets dlsched/rpc/v1/*_pb2*.py; default: this repository.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
target=${1:-..}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# protoc names modules after paths: build under the package's own path
mkdir -p "$work/in/dlsched/rpc/v1"
for file in dlsched/v1/*.proto; do
    sed 's#import "dlsched/v1/#import "dlsched/rpc/v1/#' "$file" >"$work/in/dlsched/rpc/v1/$(basename "$file")"
done
mkdir -p "$target"
"${PYTHON:-python3}" -m grpc_tools.protoc -I "$work/in" --python_out="$target" --pyi_out="$target" \
    --grpc_python_out="$target" "$work"/in/dlsched/rpc/v1/*.proto
# the fields of messages, for clients that do without protobuf
[[ $# -gt 0 ]] || "${PYTHON:-python3}" message_fields.py --write
