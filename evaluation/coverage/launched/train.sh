#!/usr/bin/env bash
set -eu
cd "$(dirname "$0")"
export OMP_NUM_THREADS=1
for steps in 6; do
    python -u train.py --steps "$steps" "$@"
done
