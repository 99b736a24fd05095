"""Who may import whom. Read from the source, so that lazy imports inside functions count too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Apps on one line do not import each other.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("core",),
    ("accounts",),
    ("teams",),
    ("projects",),
    ("runs",),
    ("datasets", "checkpoints", "metrics", "evals", "rollouts"),
    ("methods",),
    ("launch",),
    ("studies",),
    ("compare", "health", "reports", "live", "runpage", "runlist", "files"),
    ("api", "compat"),
    ("backup",),
    ("demo",),
    ("config",),
)
LEVEL = {app: level for level, apps in enumerate(LAYERS) for app in apps}

# What the web side may take from the trainer, and where.
FORMULAS = ("trainer.contract.passk", "trainer.contract.intervals")
LIGHT = ("trainer.contract", "trainer.methods", "trainer.core.registry", "trainer.data.tasks", "trainer.data.alphabet")
STUDIES = ("trainer.contract", "trainer.studies")
ALLOWED = {
    "launch": LIGHT,
    "methods": (*LIGHT, *STUDIES),
    "studies": STUDIES,
    "api": ("trainer.studies",),
    "evals": FORMULAS,
    "compare": FORMULAS,
    "demo": FORMULAS,
}

TRAINER_MAY_NOT = ("django", "celery", "rest_framework", "webapp", "kombu")
HEAVY = ("torch", "transformers", "vllm", "numpy", "safetensors")


def _sources(folder: str) -> list[Path]:
    return sorted(path for path in (ROOT / folder).rglob("*.py") if "migrations" not in path.parts)


def _imports(path: Path, *, inside_functions: bool = True) -> Iterator[tuple[str, int]]:
    """(full module name, line) of every import; those under TYPE_CHECKING do not run and do not count."""

    def walk(node: ast.AST) -> Iterator[ast.AST]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if not inside_functions and isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                continue
            yield child
            yield from walk(child)

    for node in walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.relative_to(ROOT)}:{node.lineno} uses a relative import"
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.lineno


def _within(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def test_every_app_has_its_level() -> None:
    found = {path.parent.name for path in (ROOT / "webapp").glob("*/__init__.py")}
    assert found <= set(LEVEL), f"say in LAYERS where {sorted(found - set(LEVEL))} stand"


def test_the_settings_list_the_apps_from_low_to_high(settings) -> None:
    levels = [LEVEL[name] for name in settings.APP_ORDER]
    assert levels == sorted(levels)
    there = {path.parent.name for path in (ROOT / "webapp").glob("*/apps.py")}
    assert set(settings.APP_ORDER) == there


@pytest.mark.parametrize("path", _sources("webapp"), ids=lambda path: str(path.relative_to(ROOT)))
def test_webapp(path: Path) -> None:
    parts = path.relative_to(ROOT).parts
    app = parts[1] if len(parts) > 2 else "core"
    wrong = []
    for module, line in _imports(path):
        if module.startswith("webapp."):
            other = module.split(".")[1]
            # The Celery application is what a task registers with.
            if module == "webapp.config.celery.app" and path.name == "tasks.py":
                continue
            if other != app and LEVEL.get(other, 99) >= LEVEL[app]:
                wrong.append(f"line {line}: {module} is not below {app}")
        elif _within(module, ("trainer",)) and not _within(module, ALLOWED.get(app, ())):
            wrong.append(f"line {line}: {app} may not import {module}")
        elif _within(module, HEAVY):
            wrong.append(f"line {line}: the web side never imports {module}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", _sources("trainer"), ids=lambda path: str(path.relative_to(ROOT)))
def test_trainer(path: Path) -> None:
    wrong = [f"line {line}: {module}" for module, line in _imports(path) if _within(module, TRAINER_MAY_NOT)]
    assert not wrong, f"the trainer never imports these: {wrong}"


def _light_sources() -> list[Path]:
    contract = _sources("trainer/contract")
    methods = _sources("trainer/methods")
    tasks = _sources("trainer/data/tasks")
    core = [ROOT / "trainer/core/registry.py", ROOT / "trainer/core/types.py"]
    return [path for path in (*contract, *methods, *tasks, *core) if path.exists()]


@pytest.mark.parametrize("path", _light_sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_import_light(path: Path) -> None:
    found = [
        f"line {line}: {module}" for module, line in _imports(path, inside_functions=False) if _within(module, HEAVY)
    ]
    assert not found, f"launch forms load this file in the web process: {found}"


def test_views_do_not_save() -> None:
    writes = {"save", "create", "update", "delete", "bulk_create", "get_or_create", "update_or_create"}
    wrong = []
    for path in (ROOT / "webapp").glob("*/views*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in writes:
                owner = ast.unparse(node.func.value)
                if "objects" in owner or node.func.attr == "save":
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node.func)}")
    assert not wrong, f"writes belong in services: {wrong}"


def test_tasks_live_in_launch_and_core_only() -> None:
    found = {path.parent.name for path in (ROOT / "webapp").glob("*/tasks.py")}
    assert found <= {"launch", "core"}


def test_the_checker_sees_imports_inside_functions_and_skips_typing_ones(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text("import a\nif TYPE_CHECKING:\n    import b\ndef f():\n    from c import d\n")
    assert [name for name, _line in _imports(source)] == ["a", "c.d"]
    assert [name for name, _line in _imports(source, inside_functions=False)] == ["a"]
