#!/usr/bin/env bash
# Measures a GPU host in at most 8 minutes: sampling by each engine, training with all weights and with LoRA.
# usage: scripts/gpu_check.sh [--tiny] [FOLDER]     FOLDER (default $OUT, else build/gpu-check) gets gpu_check.json
# --tiny takes a small model on the CPU: whether the check itself works. PYTHON names the interpreter (default python3).
set -euo pipefail
cd "$(dirname "$0")/.."
tiny=""; if [ "${1:-}" = --tiny ]; then tiny=--tiny; shift; fi
folder=${1:-${OUT:-build/gpu-check}}
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false PYTHONPATH=.
exec timeout --signal=TERM 480 "${PYTHON:-python3}" scripts/gpu_check.py $tiny --out "$folder"
