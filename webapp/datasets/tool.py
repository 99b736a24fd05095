"""The trainer's command ``dataset``: every file that someone uploaded is parsed there, in a process without secrets.

A malformed file can end that process and nothing else. It is started with a path and a mapping, and answers in JSON lines.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.conf import settings

PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
INSPECT_SECONDS = 60


class ToolError(Exception):
    """The file cannot be used as it is; the text is for people."""


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return kept | {"PYTHONPATH": str(settings.BASE_DIR), "OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}


def inspect(path: Path, name: str, mapping: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What a file holds and its first rows under the mapping; see `trainer.data.importers.imports.inspect`."""
    with tempfile.TemporaryDirectory(prefix="unsqueeze-inspect-") as scratch:
        command = [*settings.TRAINER_COMMAND, "dataset", "inspect", str(path), f"--name={name}"]
        if mapping is not None:
            document = Path(scratch) / "mapping.json"
            document.write_text(json.dumps(mapping), encoding="utf-8")
            command += ["--mapping", str(document)]
        try:
            done = subprocess.run(
                command, capture_output=True, timeout=INSPECT_SECONDS, cwd=scratch, env=_environment(), check=False
            )
        except subprocess.TimeoutExpired:
            raise ToolError(
                f"Looking at {name} took more than {INSPECT_SECONDS} s; its first rows may be huge."
            ) from None
    return _answer(done.stdout.splitlines()[-1:], name)


def _answer(lines: list[bytes], name: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, ValueError):
        raise ToolError(
            f"The process that read {name} died. The file may be damaged, or need more memory than there is."
        ) from None
    if "error" in found:
        raise ToolError(str(found["error"]))
    return found


@contextmanager
def importing(
    path: Path, name: str, *, out: Path, mapping: Mapping[str, Any], others: list[dict[str, Any]]
) -> Iterator[Any]:
    """The lines of an import as they come: {rows, share}, and last {done: …} or ToolError raised. The process is ended when
    the block is left."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "mapping.json").write_text(json.dumps(mapping), encoding="utf-8")
    (out / "others.json").write_text(json.dumps(others), encoding="utf-8")
    command = [
        *settings.TRAINER_COMMAND, "dataset", "import", str(path), f"--name={name}", "--out", str(out),
        "--mapping", str(out / "mapping.json"), "--others", str(out / "others.json"),
    ]  # fmt: skip
    with (out / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, cwd=out, env=_environment(),
            start_new_session=True,
        )  # fmt: skip
    try:
        yield _lines(process, name)
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _lines(process: "subprocess.Popen[bytes]", name: str) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    finished = False
    for line in process.stdout:
        found = _answer([line], name)
        finished = "done" in found
        yield found
    if not finished:
        _answer([], name)
