"""A trainer without training, for the launch path: the command line, files, signals and exit codes of the real one.

Called as `fake_trainer.py SCENARIO run|resume ...`. Only the standard library, so that it starts quickly.
"""

import argparse
import json
import os
import select
import signal
import sys
from pathlib import Path

SCENARIO = sys.argv.pop(1)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=("run", "resume"))
    parser.add_argument("what", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--attempt", type=int)
    parser.add_argument("--files", type=Path)
    parser.add_argument("--parent-fd", type=int)
    parser.add_argument("--checkpoint", action="append")
    parser.add_argument("--from-start", action="store_true")
    parser.add_argument("--keep-all", action="store_true")
    parser.add_argument("--quiet", action="store_true")
    return parser.parse_args()


class Fake:
    """Writes the events of one attempt."""

    def __init__(self) -> None:
        self.args = arguments()
        self.run = self.args.out if self.args.verb == "run" else self.args.what
        self.folder = self.run / "attempts" / str(self.args.attempt)
        self.file = (self.folder / "events.jsonl").open("x", buffering=1)
        self.seq = 0
        self.stopped = False
        self.wakeup, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self.on_term)

    def on_term(self, *_: object) -> None:
        self.stopped = True

    def line(self, event: dict) -> str:
        self.seq += 1
        body = {
            "run": os.environ["UNSQUEEZE_RUN_ID"], "attempt": self.args.attempt, "seq": self.seq,
            "time": "2026-01-01T00:00:00Z", "monotonic": float(self.seq), "event": event,
        }  # fmt: skip
        return json.dumps(body) + "\n"

    def emit(self, **event: object) -> None:
        self.file.write(self.line(event))

    def scalars(self, iteration: int, value: float) -> None:
        finite = value == value
        self.emit(
            kind="scalars", axes={"iteration": iteration}, values={"reward": value if finite else None},
            nonfinite={} if finite else {"reward": "nan"},
        )  # fmt: skip

    def checkpoint(self, iteration: int) -> None:
        uri = f"attempts/{self.args.attempt}/checkpoints/it-{iteration:08d}"
        (self.run / uri).mkdir(parents=True)
        (self.run / uri / "manifest.json").write_text(json.dumps({"iteration": iteration}))
        self.emit(
            kind="checkpoint", axes={"iteration": iteration}, uri=uri, weights_hash=f"h{iteration}", size_bytes=1
        )  # fmt: skip

    def newest(self) -> int:
        found = self.run.glob("attempts/*/checkpoints/it-*/manifest.json")
        return max((json.loads(path.read_text())["iteration"] for path in found), default=-1)

    def wait(self) -> None:
        """Until SIGTERM, or until the parent pipe closes."""
        while not self.stopped:
            ready, _, _ = select.select([self.args.parent_fd, self.wakeup], [], [])
            if self.args.parent_fd in ready and not os.read(self.args.parent_fd, 1):
                return

    def begin(self) -> int:
        first = 1
        self.emit(kind="state", state="starting")
        if self.args.verb == "resume":
            at = self.newest()
            self.emit(kind="mark", mark="rewind", iteration=at)
            first = max(at, 0) + 1
        self.emit(kind="state", state="running", versions={"fake": "1"})
        return first

    def train(self, first: int, last: int) -> None:
        for iteration in range(first, last + 1):
            self.scalars(iteration, iteration / 10 + self.args.attempt)
            self.emit(kind="progress", iteration=iteration, total_iterations=6)


def seen() -> dict[str, object]:
    """What the system shows of this process to itself."""
    me = Path("/proc/self")
    environ = dict(pair.split("=", 1) for pair in (me / "environ").read_text().split("\0") if pair)
    fds = {}
    for fd in (me / "fd").iterdir():
        try:
            fds[fd.name] = os.readlink(fd)
        except OSError:  # the listing itself
            continue
    command = (me / "cmdline").read_text().split("\0")
    return {"environ": environ, "cwd": os.getcwd(), "cmdline": command, "fds": fds}


def leak(fake: Fake, token: str) -> int:
    """Writes the secret in every way, past every redaction that a trainer should do itself."""
    fake.emit(kind="log", message=f"token {token}")
    fake.emit(kind="text", axes={"iteration": 1}, key=f"note {token}", text=f"Basic {token}")
    fake.emit(kind="table", axes={"iteration": 1}, key="t", columns=[token], rows=[[{token: [token]}]])
    fake.emit(kind="mark", mark="alert", iteration=1, message=token, data={token: token})
    fake.emit(kind="progress", iteration=1, total_iterations=6, stage=token)
    fake.file.write(f"this is no event but holds {token}\n")
    fake.scalars(1, 0.5)
    sys.stderr.write("x" * ((1 << 20) - 10) + token + "\n")
    os.write(2, f"RuntimeError: {token}\n".encode())
    fake.emit(kind="state", state="failed", message=f"cannot reach https://user:{token}@host")
    return 1


def leak_long(fake: Fake, token: str) -> int:
    """Writes the secret where a reader shortens what it stores or quotes."""
    fake.emit(kind="progress", iteration=1, total_iterations=6, stage="x" * 45 + token)
    fake.emit(kind="phase", axes={"iteration": 1}, name="x" * 45 + token, title="a phase")
    fake.emit(kind="text", axes={"iteration": 1}, key="x" * 145 + token, text="x" * 199_985 + token)
    fake.emit(kind="table", axes={"iteration": 1}, key="t", columns=["a"], rows=[["x" * 3_985 + token]])
    fake.emit(kind="new kind", text="x" * 999_950 + token)
    fake.file.write("x" * 985 + token + "\n")
    end = "\nthe end\n"
    os.write(2, (token + "y" * ((1 << 16) - 10 - len(end)) + end).encode())
    return 1


def main() -> int:
    fake = Fake()
    first = fake.begin()
    if SCENARIO == "finish":
        fake.train(first, 6)
        fake.emit(kind="state", state="finished", message="finished")
        return 0
    if SCENARIO == "wait":
        fake.train(first, first + 2)
        fake.checkpoint(first + 1)
        fake.wait()
        fake.emit(kind="state", state="stopped", message="stopped")
        return 10
    if SCENARIO == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        fake.train(first, first + 2)
        child = os.fork()
        (fake.folder / ("child.pid" if child == 0 else "parent.pid")).write_text(str(os.getpid()))
        while True:
            signal.pause()
    if SCENARIO == "numeric":
        fake.scalars(1, float("nan"))
        fake.emit(kind="state", state="failed", message="loss is NaN at iteration 1")
        return 4
    if SCENARIO == "crash":
        fake.train(first, 2)
        print("Traceback (most recent call last):\nRuntimeError: shape mismatch", file=sys.stderr)
        return 1
    if SCENARIO == "killed":
        fake.train(first, 2)
        fake.file.write(fake.line({"kind": "log", "message": "torn"})[:20])
        fake.file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    if SCENARIO == "environment":
        (fake.folder / "seen.json").write_text(json.dumps(seen()))
        return 0
    if SCENARIO == "leak":
        return leak(fake, os.environ["HF_TOKEN"])
    if SCENARIO == "leak-long":
        return leak_long(fake, os.environ["HF_TOKEN"])
    raise ValueError(SCENARIO)


if __name__ == "__main__":
    sys.exit(main())
