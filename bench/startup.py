"""How long a start takes: importing the contract, and ``python -m trainer run`` until its first iteration is done.

    python bench/startup.py --rounds 5

One JSON line: medians and best of wall seconds, and best CPU seconds, of fresh processes. The run is the demo's GRPO
configuration from its base checkpoint without an evaluation before it, bound to end after one iteration.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ASSETS = ROOT / "trainer" / "assets"


def child_seconds() -> float:
    """CPU seconds of all ended child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_config() -> dict[str, Any]:
    """The demo's GRPO run, cut to one iteration that nothing is measured before or after."""
    config: dict[str, Any] = json.loads((ASSETS / "demo-grpo.json").read_text())
    config["policy"]["checkpoint"] = str(ASSETS / "countdown4-base")
    config["evaluation"] |= {"every": 0, "problems": 0, "final_problems": 0}
    config["budget"]["iterations"] = 1
    return config


def first_iteration(events: Path, began: float) -> float:
    """Seconds from the process's start to the event that says that one iteration is done."""
    for line in events.read_text().splitlines():
        envelope = json.loads(line)
        if envelope["event"]["kind"] == "progress" and envelope["event"]["iteration"] == 1:
            return float(envelope["monotonic"]) - began
    raise SystemExit(f"{events} names no iteration that was done")


def started(*command: str) -> float:
    """Seconds at which a Python process with these arguments was started, after it has ended."""
    began = time.monotonic()
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    return began


def importing() -> tuple[float, float]:
    """(wall, CPU) seconds of the import inside a fresh process."""
    code = "import time; w, c = time.perf_counter(), time.process_time(); import trainer.contract.config; "
    code += "print(time.perf_counter() - w, time.process_time() - c)"
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    wall, cpu = map(float, out.split())
    return wall, cpu


def running() -> tuple[float, float]:
    """(wall seconds to the end of the first iteration, CPU seconds of the whole process)."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.json"
        config.write_text(json.dumps(run_config()))
        before = child_seconds()
        began = started("-m", "trainer", "run", str(config), "--out", f"{folder}/run", "--quiet")
        return first_iteration(Path(folder, "run/attempts/1/events.jsonl"), began), child_seconds() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    line: dict[str, float] = {}
    for name, measure in (("import_contract", importing), ("first_iteration", running)):
        found = [measure() for _ in range(rounds)]
        walls, cpus = zip(*found, strict=True)
        line |= {f"{name}_wall_median": round(statistics.median(walls), 2), f"{name}_wall_best": round(min(walls), 2)}
        line[f"{name}_cpu_best"] = round(min(cpus), 2)
    print(json.dumps(line))


if __name__ == "__main__":
    main()
