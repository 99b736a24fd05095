"""How fast and in how much memory a dataset is imported, and how long a preview takes.

    python bench/datasets.py [--rows 1000000] [--out FOLDER]

Writes a GSM8K-like JSONL file of that many rows, imports it with the trainer's own command line in a process of its own,
and asks for ten previews. Prints one JSON object: rows/s, seconds, peak resident memory of the process and its children
(MB), file sizes, and preview latencies in milliseconds.
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

ROOT = Path(__file__).resolve().parents[1]


def write_rows(path: Path, rows: int) -> None:
    """Distinct problems with a worked solution of two lines."""
    with path.open("w", encoding="utf-8") as file:
        for i in range(rows):
            a, b = i % 9973, i // 97
            question = (
                f"Problem {i}: a farm has {a} hens and buys {b} more on Monday. How many hens are there on Tuesday?"
            )
            solution = f"There are {a} hens first.\n{a} + {b} = {a + b}\n#### {a + b}"
            file.write(json.dumps({"question": question, "answer": solution, "level": i % 5}) + "\n")


def main() -> None:
    """Runs the measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.out or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        source = folder / "rows.jsonl"
        write_rows(source, arguments.rows)
        trainer = [sys.executable, "-m", "trainer", "dataset"]
        previews = []
        for _ in range(10):
            began = time.monotonic()
            subprocess.run([*trainer, "inspect", str(source)], check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
            previews.append((time.monotonic() - began) * 1000)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.monotonic()
        command = [*trainer, "import", str(source), "--out", str(folder / "version")]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        seconds = time.monotonic() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        result = json.loads(done.stdout.splitlines()[-1])["done"]
        print(
            json.dumps(
                {
                    "rows": result["rows"],
                    "seconds": round(seconds, 1),
                    "rows_per_second": round(result["rows"] / seconds),
                    "cpu_seconds": round(cpu, 1),
                    "rows_per_cpu_second": round(result["rows"] / cpu),
                    "peak_rss_mb": round(after.ru_maxrss / 1024),
                    "preview_rss_mb": round(before.ru_maxrss / 1024),
                    "source_mb": round(source.stat().st_size / 1e6, 1),
                    "version_mb": round(result["bytes"] / 1e6, 1),
                    "preview_ms_median": round(statistics.median(previews)),
                    "preview_ms_max": round(max(previews)),
                }
            )
        )


if __name__ == "__main__":
    main()
