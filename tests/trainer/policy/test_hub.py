"""Models by their name on the hub: a real client against a hub on this host, and what is said where there is none."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from trainer.contract.exit_codes import ExitCode
from trainer.core.errors import ConfigError
from trainer.loop.run import resolve_folder
from trainer.policy.fingerprint import weights_hash
from trainer.policy.hub import is_hub_name
from trainer.policy.load import load_policy, save_policy
from trainer.testing.tiny import tiny_policy

ROOT = Path(__file__).resolve().parents[3]
COMMIT = "c" * 40


class Hub(BaseHTTPRequestHandler):
    """What a download of org/tiny asks for; everything else is 404. ``server.folder`` has its files."""

    server: Any

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        path = self.path.split("?")[0]
        if path == "/api/models/org/tiny/revision/main":
            self.answer(json.dumps({"id": "org/tiny", "sha": COMMIT, "siblings": []}).encode())
        elif path == f"/api/models/org/tiny/tree/{COMMIT}":
            files = [{"type": "file", "path": p.name, "size": p.stat().st_size, "oid": sha1(p)} for p in self.files()]
            self.answer(json.dumps(files).encode())
        else:
            found = [p for p in self.files() if path == f"/org/tiny/resolve/{COMMIT}/{p.name}"]
            self.answer(found[0].read_bytes(), found[0]) if found else self.answer(b"{}", status=404)

    do_HEAD = do_GET

    def files(self) -> list[Path]:
        return sorted(self.server.folder.iterdir())

    def answer(self, body: bytes, file: Path | None = None, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/octet-stream" if file else "application/json")
        if file:
            self.send_header("ETag", f'"{sha1(file)}"')
        self.send_header("X-Repo-Commit", COMMIT)
        if status == 404:
            self.send_header("X-Error-Code", "RepoNotFound")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        return


def sha1(path: Path) -> str:
    return hashlib.sha1(path.read_bytes()).hexdigest()


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.folder, server.asked = tmp_path / "org-tiny", []
    save_policy(tiny_policy(), server.folder)
    (server.folder / "pytorch_model.bin").write_bytes(b"not wanted")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def convert(name: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """`trainer convert` of a model of the hub, with a cache below ``folder``."""
    kept = {k: v for k, v in os.environ.items() if k not in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")}
    return subprocess.run(
        [sys.executable, "-m", "trainer", "convert", name, "--out", str(folder / "out"), "--files", str(folder)],
        capture_output=True, text=True, cwd=ROOT, check=False, timeout=120,
        env=kept | {"HF_HOME": str(folder / "cache"), "HF_HUB_DISABLE_XET": "1", **environment},
    )  # fmt: skip


@pytest.mark.slow
def test_a_name_is_downloaded_once_and_then_found_without_the_hub(hub: Any, tmp_path: Path) -> None:
    here = f"http://127.0.0.1:{hub.server_port}"
    first = convert("org/tiny", tmp_path, HF_ENDPOINT=here)
    assert first.returncode == ExitCode.FINISHED, first.stderr
    assert weights_hash(load_policy(tmp_path / "out").model) == weights_hash(tiny_policy().model)
    assert not [path for path in hub.asked if "pytorch_model" in path]
    asked = len(hub.asked)
    (tmp_path / "out").rename(tmp_path / "first")
    again = convert("org/tiny", tmp_path, HF_ENDPOINT=here)
    assert again.returncode == ExitCode.FINISHED, again.stderr
    assert len(hub.asked) == asked


@pytest.mark.slow
def test_a_name_that_cannot_be_had_says_why_and_what_to_change(hub: Any, tmp_path: Path) -> None:
    here, nowhere = f"http://127.0.0.1:{hub.server_port}", "http://127.0.0.1:9"
    for name, environment, told in (
        ("org/tiny", {"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set: unset it"),
        ("org/tiny", {"HF_ENDPOINT": nowhere}, f"{nowhere} could not be reached: connect, or set HF_ENDPOINT"),
        ("org/other", {"HF_ENDPOINT": here}, f"{here} answers: "),
    ):
        found = convert(name, tmp_path, **environment)
        assert found.returncode == ExitCode.CONFIG, found.stderr
        assert f"policy.checkpoint: found no '{name}' below the file storage" in found.stderr
        assert told in found.stderr
        assert "name a local folder" in found.stderr
        assert "Traceback" not in found.stderr


def test_without_a_network_a_name_is_refused_with_the_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(ConfigError, match=r"policy.checkpoint: found no 'org/tiny'.* HF_HUB_OFFLINE is set: unset it"):
        resolve_folder(tmp_path, "org/tiny")


def test_what_lies_in_the_storage_is_no_name_of_the_hub(tmp_path: Path) -> None:
    assert is_hub_name("org/name", tmp_path)
    assert is_hub_name("Qwen/Qwen2.5-0.5B-Instruct@refs/pr/1", tmp_path)
    for reference in ("name", "a/b/c", "/org/name", "../name", "./name", "org/name.gguf/x", "runs/../x"):
        assert not is_hub_name(reference, tmp_path)
    (tmp_path / "org" / "name").mkdir(parents=True)
    assert not is_hub_name("org/name", tmp_path)
