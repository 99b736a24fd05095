"""Nothing here ever unpickles: a file that somebody uploads, or a bucket holds, must not be able to run code."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
CALLS = {"torch.load", "pandas.read_pickle", "pd.read_pickle"}
NUMPY = {"np.load", "numpy.load"}


def found_in(source: str) -> list[tuple[int, str]]:
    """(line, what) of everything in the source that may unpickle."""
    faults = []
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = [module]
            faults += [(node.lineno, f"{module}.{a.name}") for a in node.names if f"{module}.{a.name}" in CALLS | NUMPY]
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            allowed = [ast.unparse(k.value) for k in node.keywords if k.arg == "allow_pickle"]
            dynamic = called in ("__import__", "import_module", "importlib.import_module") and node.args
            if called in CALLS or (called in NUMPY and allowed != ["False"]):
                faults.append((node.lineno, called))
            if dynamic and isinstance(node.args[0], ast.Constant) and node.args[0].value in MODULES:
                faults.append((node.lineno, str(node.args[0].value)))
        faults += [(node.lineno, name) for name in names if name.split(".")[0] in MODULES]  # type: ignore[attr-defined]
    return faults


@pytest.mark.parametrize("folder", ["trainer", "webapp"])
def test_nothing_unpickles(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert len(files) > 50
    faults = [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path in files
        for line, what in found_in(path.read_text(encoding="utf-8"))
    ]
    assert faults == []


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("import pickle", "pickle"),
        ("from joblib import load", "joblib"),
        ("def f():\n    import dill as d", "dill"),
        ("import torch\ntorch.load('x', weights_only=True)", "torch.load"),
        ("from torch import load", "torch.load"),
        ("np.load(path, allow_pickle=True)", "np.load"),
        ("numpy.load(path, allow_pickle=chosen)", "numpy.load"),
        ("importlib.import_module('pickle')", "pickle"),
    ],
)
def test_what_would_unpickle_is_seen(source: str, what: str) -> None:
    assert [found for _line, found in found_in(source)] == [what]


def test_numpy_without_pickles_is_let_be() -> None:
    assert found_in("np.load(path, allow_pickle=False)\nsafetensors.torch.load_file(path)") == []
