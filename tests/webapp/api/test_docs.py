"""docs/api.md: its list of codes is complete, and its script does what it says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.installed.documents import rl
from tests.installed.hand import PROJECT, TEAM
from tests.installed.processes import any_port, installed
from webapp.api.errors import CODES

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "api.md").read_text()
[SCRIPT] = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
WHO = "ada@example.org"


def test_every_code_stands_in_the_documentation() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| (.*) \|$", TEXT, re.MULTILINE)
    assert [(code, (int(status), meaning)) for code, status, meaning in rows] == list(CODES.items())


def test_the_script_has_thirty_lines() -> None:
    assert len([line for line in SCRIPT.splitlines() if line.strip()]) <= 30


@pytest.mark.slow
def test_the_script_launches_watches_stops_resumes_and_downloads(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    document = rl(budget={"iterations": 120}, evaluation={"every": 0, "final_problems": 0, "problems": 4, "samples": 2})
    (here / "config.json").write_text(json.dumps(document))
    (here / "script.py").write_text(SCRIPT)
    with installed(tmp_path / "data", port=any_port()) as server:
        server.hand("people", roles={WHO: "owner"})
        env = {
            **os.environ,
            "SERVER": server.address,
            "TOKEN": server.hand("token", email=WHO),
            "PROJECT": f"{TEAM}/{PROJECT}",
        }
        command = [sys.executable, "script.py", "config.json", "a key of ours"]
        done = subprocess.run(command, cwd=here, env=env, capture_output=True, text=True, timeout=280)
        assert done.returncode == 0, done.stderr + server.logs()
        said = done.stdout.splitlines()
        assert [line for line in said if line in ("stopped", "finished")] == ["stopped", "finished"]
        assert any(re.fullmatch(r"running iteration \d+ reward [\d.]+", line) for line in said)
        assert any(line.startswith("downloaded policies/policy/model") for line in said)
        assert (here / "model.safetensors").stat().st_size > 10_000
        [run] = {line.split('"')[3] for line in _launches(env, document, times=4)}
        assert server.look(run)["attempt"] == 2, "the key belongs to the script's own launch"


def _launches(env: dict[str, str], document: dict[str, object], *, times: int) -> list[str]:
    """The bodies of the same launch at the same time, with the script's key."""
    import urllib.request

    body = json.dumps({"config": document, "name": "from a script"}).encode()
    headers = {
        "Authorization": f"Bearer {env['TOKEN']}",
        "Content-Type": "application/json",
        "Idempotency-Key": "a key of ours",
    }

    def send(_: int) -> str:
        request = urllib.request.Request(f"{env['SERVER']}/api/v1/projects/{env['PROJECT']}/runs", body, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read().decode()

    with ThreadPoolExecutor(times) as pool:
        return list(pool.map(send, range(times)))
