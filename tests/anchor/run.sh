#!/usr/bin/env bash
# The anchor tests in an environment of their own: TRL and verl laid over the project's environment ($1, default .venv).
set -euo pipefail
cd "$(dirname "$0")/../.."
base=${1:-.venv}
own=${ANCHOR_VENV:-build/anchor}
if ! cmp -s tests/anchor/requirements.txt "$own/.installed"; then
  rm -rf "$own"
  "$base/bin/python" -m venv "$own"
  site=$("$own/bin/python" -c 'import site; print(site.getsitepackages()[0])')
  "$base/bin/python" -c 'import site; print(site.getsitepackages()[0])' >"$site/base.pth"
  "$own/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r tests/anchor/requirements.txt
  rm -rf "$site/tests" # verl ships its own, which would hide ours
  cp tests/anchor/requirements.txt "$own/.installed"
fi
"$own/bin/python" -c "import trl; from verl.trainer.ppo import core_algos" # a missing one is an error here, not a skipped test
"$own/bin/python" -m pytest -q -m anchor tests/anchor
