"""Where static files come from that are part of installed packages."""

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.contrib.staticfiles.finders import BaseFinder
from django.core.checks import CheckMessage
from django.core.checks import Error as CheckError
from django.core.files.storage import FileSystemStorage

# name below static/ -> (package, file inside it). The packages are located, never imported.
VENDOR_FILES = {"vendor/plotly.min.js": ("plotly", "package_data/plotly.min.js")}


def vendor_path(name: str) -> Path | None:
    """The file that stands behind a static name, or None when the name is not ours or its package is not installed."""
    if name not in VENDOR_FILES:
        return None
    package, inside = VENDOR_FILES[name]
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / inside
    return path if path.exists() else None


class _OneFile(FileSystemStorage):
    """A storage in which one name leads to one file elsewhere."""

    def __init__(self, path: Path) -> None:
        super().__init__(location=str(path.parent))
        self.file = path

    def path(self, name: str) -> str:
        return str(self.file)


class VendorFinder(BaseFinder):
    """Serves the files of `VENDOR_FILES`, so that nothing is copied into the repository or fetched while running."""

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        return [
            CheckError(
                f"The static file {name} is missing from the installed packages.",
                hint=f"Install the requirements; the file is part of the package {package!r}.",
                id="unsqueeze.E010",
            )
            for name, (package, _inside) in VENDOR_FILES.items()
            if vendor_path(name) is None
        ]

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        # Django 5.2 still accepts the older name of `find_all`.
        find_all = bool(kwargs.get("all", find_all))
        found = vendor_path(path)
        if found is None:
            return []
        return [str(found)] if find_all else str(found)

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterable[Any]:
        for name in VENDOR_FILES:
            found = vendor_path(name)
            if found is not None:
                yield name, _OneFile(found)
