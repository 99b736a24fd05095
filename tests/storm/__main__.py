"""`make storm`: an installation of its own in a storm of troubles, and whether every run comes through it whole.

    python -m tests.storm                                   100 rounds, SQLite and files
    python -m tests.storm --services postgres --rounds 40   PostgreSQL and Redis
    python -m tests.storm --seed 7 --plan                   only says what would happen

Exit code 0: no fault. With a fault the installation's folder is kept, with every log.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.storm", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=100, help="troubles (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="the same seed gives the same troubles (default: a new one)")
    parser.add_argument("--services", choices=("sqlite", "postgres"), default="sqlite", help="default: %(default)s")
    parser.add_argument(
        "--files", choices=("folder", "bucket"), help="default: a bucket with PostgreSQL, else a folder"
    )
    parser.add_argument("--iterations", type=int, default=60, help="length of the runs (default: %(default)s)")
    parser.add_argument("--only", nargs="+", metavar="TROUBLE", help="these kinds alone")
    parser.add_argument("--plan", action="store_true", help="print the plan and leave")
    options = parser.parse_args()
    # Also on SIGTERM nothing is left running or mounted.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    # The bucket's server would name every request.
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    folder = Path(tempfile.mkdtemp(prefix="unsqueeze-storm-"))
    os.chmod(folder, 0o755)  # PostgreSQL's own user passes through
    os.environ["UNSQUEEZE_DATA"] = str(folder / "unused")
    os.environ["DJANGO_SETTINGS_MODULE"] = "webapp.config.settings"
    seed = options.seed if options.seed is not None else random.randrange(1_000_000)
    faults = run(options, seed, folder)
    if faults:
        print(f"kept: {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder)
    return 0


def run(options: argparse.Namespace, seed: int, folder: Path) -> int:
    """The number of faults."""
    from tests.storm.installation import weathered
    from tests.storm.plan import plan
    from tests.storm.storm import Storm, summary
    from tests.storm.trouble import KINDS

    began = time.monotonic()

    def say(text: str) -> None:
        passed = int(time.monotonic() - began)
        print(f"{passed // 60:>3}:{passed % 60:02d} {text}", flush=True)

    files = options.files or ("bucket" if options.services == "postgres" else "folder")
    say(f"seed {seed}, {options.rounds} rounds, {options.services}, files in a {files}, in {folder}")
    with weathered(folder, options.services, files=files) as there:
        kinds = options.only or [name for name, kind in KINDS.items() if kind.possible(there)]
        rounds = list(plan(seed, options.rounds, kinds))
        if options.plan:
            print("\n".join(f"{one.number:>4}  {one}" for one in rounds))
            return 0
        storm = Storm(there, iterations=options.iterations, say=say)
        storm.calm()
        say(f"calm: {len(storm.undisturbed)} undisturbed runs")
        storm.weather(iter(rounds))
        say("the storm is over; waiting for the last runs")
        storm.arrive()
        if storm.tally.faults:
            shutil.copytree(there.here.data, folder / "data", ignore_dangling_symlinks=True, dirs_exist_ok=True)
    print(summary(storm.tally, time.monotonic() - began))
    return len(storm.tally.faults)


if __name__ == "__main__":
    sys.exit(main())
