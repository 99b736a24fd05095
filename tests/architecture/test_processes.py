"""What a process really loads: fresh interpreters, with `sys.modules` looked at afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"torch", "transformers", "vllm", "numpy"}


def _loaded(statement: str, data: Path) -> set[str]:
    """The top-level packages that are loaded after running the statement in a new interpreter."""
    code = f"{statement}\nimport sys; print(' '.join({{name.partition('.')[0] for name in sys.modules}}))"
    environment = {**os.environ, "UNSQUEEZE_DATA": str(data), "DJANGO_SETTINGS_MODULE": "webapp.config.settings"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "statement",
    [
        # The URL configuration loads every view, form and selector.
        "import webapp.config.asgi\nfrom django.urls import get_resolver\nget_resolver().url_patterns",
        "import django; django.setup()\nfrom webapp.config.celery import app; app.loader.import_default_modules()",
    ],
    ids=["web", "worker"],
)
def test_web_and_worker_load_nothing_heavy(statement: str, tmp_path: Path) -> None:
    loaded = _loaded(statement, tmp_path)
    assert "django" in loaded
    assert not loaded & HEAVY


def test_contract_methods_and_tasks_load_nothing_heavy(tmp_path: Path) -> None:
    modules = sorted(
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for folder in ("trainer/contract", "trainer/methods", "trainer/data/tasks")
        for path in (ROOT / folder).rglob("*.py")
    )
    modules += ["trainer.core.types", "trainer.core.registry"]
    loaded = _loaded("\n".join(f"import {module}" for module in modules), tmp_path)
    assert "trainer" in loaded
    assert not loaded & {*HEAVY, "django", "celery"}


def test_the_web_process_starts_small(tmp_path: Path) -> None:
    environment = {**os.environ, "UNSQUEEZE_DATA": str(tmp_path), "DJANGO_SETTINGS_MODULE": "webapp.config.settings"}
    code = (
        "import webapp.config.asgi\nfrom django.urls import get_resolver\nget_resolver().url_patterns\n"
        # Not getrusage: its peak is inherited from the process that forked this one.
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    kibibytes = int(done.stdout.splitlines()[-1])
    assert kibibytes < 160 * 1024, "the whole process has 250 MB, open streams included"
