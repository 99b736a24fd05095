"""Where files are. Rows hold URIs relative to the file storage, never absolute paths."""

from pathlib import Path, PurePosixPath

from django.conf import settings


class BadUri(ValueError):
    """A URI that leaves its folder; what it names is not touched."""


def files_root() -> Path:
    """The file storage of this host: the setting UNSQUEEZE_FILES."""
    return Path(settings.FILES_DIR)


def run_uri(run_id: str, inside: str = "") -> str:
    """URI of a run's folder, or of what lies in it (`inside`, relative to that folder). Raises BadUri when it leaves
    it.
    """
    return checked(f"runs/{run_id}/{checked(inside)}" if inside else f"runs/{run_id}")


def attempt_uri(run_id: str, number: int, inside: str = "") -> str:
    """URI of an attempt's folder, or of a file in it."""
    return run_uri(run_id, f"attempts/{number}/{inside}" if inside else f"attempts/{number}")


def checked(uri: str) -> str:
    """The URI itself, in normal form. Raises BadUri when it is absolute, climbs, or holds what no storage takes."""
    path = PurePosixPath(uri)
    if not uri or path.is_absolute() or ".." in path.parts or "\\" in uri or "\0" in uri:
        raise BadUri(f"{uri!r} is not a path inside the file storage; expected a relative one without '..'")
    return str(path)


def path_of(uri: str) -> Path:
    """The path of a URI on this host. Raises BadUri when it leads out of the file storage, by a link for instance."""
    root = files_root().resolve()
    path = (root / checked(uri)).resolve()
    if not path.is_relative_to(root):
        raise BadUri(f"{uri!r} leads to {path}, which is outside the file storage {root}")
    return path
