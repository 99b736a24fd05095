"""Settings from environment variables.

Every helper takes the variable's full name and a default, and refuses a value that it cannot read with an error that
names the variable, what was found and what is accepted. A variable that is set to nothing counts as not set.
"""

import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

TRUE_WORDS = ("1", "true", "yes", "on")
FALSE_WORDS = ("0", "false", "no", "off")


def text(name: str, default: str = "") -> str:
    """The variable as it stands, without surrounding blanks."""
    return os.environ.get(name, "").strip() or default


def flag(name: str, default: bool = False) -> bool:
    """True or False from one of the accepted words, in any case."""
    found = text(name).lower()
    if not found:
        return default
    if found in TRUE_WORDS:
        return True
    if found in FALSE_WORDS:
        return False
    raise ImproperlyConfigured(
        f"{name} is {found!r}; accepted are {', '.join(TRUE_WORDS)} and {', '.join(FALSE_WORDS)}."
    )


def integer(name: str, default: int, *, minimum: int | None = None) -> int:
    """A whole number, at least `minimum` where one is given."""
    found = text(name)
    if not found:
        return default
    wanted = "a whole number" if minimum is None else f"a whole number of at least {minimum}"
    try:
        number = int(found)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name} is {found!r}; accepted is {wanted}.") from error
    if minimum is not None and number < minimum:
        raise ImproperlyConfigured(f"{name} is {found!r}; accepted is {wanted}.")
    return number


def choice(name: str, default: str, accepted: Sequence[str]) -> str:
    """One of the accepted words, in any case."""
    found = text(name, default)
    for word in accepted:
        if found.lower() == word.lower():
            return word
    raise ImproperlyConfigured(f"{name} is {found!r}; accepted are {', '.join(accepted)}.")


def split(text: str) -> list[str]:
    """The words of a text, with commas, blanks or lines between them."""
    return text.replace(",", " ").split()


def keys(name: str, *, shortest: int = 32) -> list[str]:
    """Keys from the variable, or from the file that NAME_FILE names; each must be long enough not to be guessed."""
    found = split(secret(name))
    if any(len(key) < shortest for key in found):
        # A key is not repeated in a message.
        raise ImproperlyConfigured(
            f"{name} holds a key of fewer than {shortest} characters; accepted are random ones, such as "
            "python -c 'import secrets; print(secrets.token_urlsafe(48))' prints."
        )
    return found


def words(name: str, default: Sequence[str] = ()) -> list[str]:
    """A list from comma-separated words."""
    return [word.strip() for word in text(name).split(",") if word.strip()] or list(default)


def secret(name: str) -> str:
    """A secret from the variable, or from the file that NAME_FILE names; empty when neither is set."""
    path = text(f"{name}_FILE")
    if not path:
        return text(name)
    if text(name):
        raise ImproperlyConfigured(f"{name} and {name}_FILE are both set; accepted is one of them.")
    try:
        found = Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ImproperlyConfigured(
            f"{name}_FILE is {path!r}, which cannot be read ({error.strerror}); accepted is a readable file."
        ) from error
    if not found:
        raise ImproperlyConfigured(f"{name}_FILE is {path!r}, which is empty; accepted is a file with the secret.")
    return found


def database(name: str, *, data: Path) -> dict[str, Any]:
    """Django's settings for the database whose address the variable (or NAME_FILE) holds.

    Without an address: SQLite in `data`, in WAL mode so that readers never wait for the writer. Every transaction
    takes its lock at the start (IMMEDIATE), because one that starts reading and then wants to write fails at once
    when another has written meanwhile.
    """
    address = secret(name)
    if not address:
        address = f"sqlite:///{data / 'db.sqlite3'}"
    parts = urlsplit(address)
    if parts.scheme == "sqlite":
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": unquote(parts.path[1:]),
            "OPTIONS": {
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
                "init_command": (
                    "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA cache_size=-20000; "
                    "PRAGMA mmap_size=134217728; PRAGMA temp_store=MEMORY;"
                ),
            },
        }
    if parts.scheme in ("postgresql", "postgres"):
        if not parts.path.strip("/"):
            raise ImproperlyConfigured(
                f"{name} names no database; accepted is postgresql://user:password@host:port/database."
            )
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": unquote(parts.path[1:]),
            "USER": unquote(parts.username or ""),
            "PASSWORD": unquote(parts.password or ""),
            "HOST": unquote(parts.hostname or ""),
            "PORT": str(parts.port or ""),
            "OPTIONS": dict(parse_qsl(parts.query)),
        }
    # The address may hold a password: only its scheme is repeated.
    raise ImproperlyConfigured(
        f"{name} starts with {parts.scheme!r}; accepted are sqlite:///file and postgresql://user:password@host:port/database."
    )


def broker(name: str, *, data: Path) -> tuple[str, dict[str, Any]]:
    """Celery's broker address and transport options.

    Without an address: files in `data`, so that no other service has to run; the folders are created here. Messages
    only wake a worker up, rows in the database are the truth: one that is lost is sent again by the scheduler.
    """
    address = secret(name) or "filesystem://"
    scheme = urlsplit(address).scheme
    if scheme == "filesystem":
        folder = data / "broker"
        for part in ("messages", "control", "processed"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        return "filesystem://", {
            "data_folder_in": str(folder / "messages"),
            "data_folder_out": str(folder / "messages"),
            "control_folder": str(folder / "control"),
            "processed_folder": str(folder / "processed"),
            "polling_interval": 0.2,
        }
    if scheme in ("redis", "rediss"):
        # A message that stays unacknowledged for longer is delivered again. Runs take longer than any sensible value;
        # the second delivery finds the attempt claimed and does nothing, so this only bounds how long a lost worker's
        # message stays away. A server that hangs is given up after the timeouts, and tried again.
        visible = integer(f"{name.removesuffix('_URL')}_VISIBILITY", 6 * 3600, minimum=1)
        # Abandoned messages are looked for every ten seconds, not every hundred.
        return address, {
            "visibility_timeout": visible,
            "unacked_restore_throttle": 1,
            "socket_timeout": 30,
            "socket_connect_timeout": 5,
        }
    raise ImproperlyConfigured(
        f"{name} starts with {scheme!r}; accepted are filesystem:// and redis://host:port/number."
    )


def file_storage(name: str) -> dict[str, Any]:
    """Django's settings for the file storage: a folder, or with s3://bucket/prefix in the variable, a bucket.

    Keys, region and endpoint of a bucket come from UNSQUEEZE_S3_ACCESS_KEY_ID, …_SECRET_ACCESS_KEY (or …_FILE),
    …_REGION and …_ENDPOINT_URL, else from the AWS_ variables of the same meaning; without keys boto3 looks where it
    always does (profile, instance role).
    """
    address = text(name)
    if not address:
        return {"BACKEND": "webapp.core.folder_storage.FolderStorage"}
    parts = urlsplit(address)
    bucket, prefix = parts.netloc, unquote(parts.path).strip("/")
    if parts.scheme != "s3" or not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", bucket):
        raise ImproperlyConfigured(
            f"{name} is {address!r}; accepted is s3://bucket/prefix, or nothing for the folder UNSQUEEZE_FILES."
        )
    if ".." in prefix.split("/") or parts.query or parts.fragment:
        raise ImproperlyConfigured(f"{name} has the prefix {prefix!r}; accepted is a plain path without '..'.")
    endpoint = text("UNSQUEEZE_S3_ENDPOINT_URL") or text("AWS_ENDPOINT_URL_S3") or text("AWS_ENDPOINT_URL")
    if endpoint and urlsplit(endpoint).scheme not in ("http", "https"):
        raise ImproperlyConfigured(f"UNSQUEEZE_S3_ENDPOINT_URL is {endpoint!r}; accepted is https://host:port.")
    key = secret("UNSQUEEZE_S3_ACCESS_KEY_ID") or secret("AWS_ACCESS_KEY_ID")
    password = secret("UNSQUEEZE_S3_SECRET_ACCESS_KEY") or secret("AWS_SECRET_ACCESS_KEY")
    if bool(key) != bool(password):
        given, missing = ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY")[:: 1 if key else -1]
        raise ImproperlyConfigured(f"UNSQUEEZE_S3_{given} is set, but not UNSQUEEZE_S3_{missing}; set both or neither.")
    options = {
        "bucket_name": bucket,
        "location": prefix,
        "access_key": key or None,
        "secret_key": password or None,
        "region_name": text("UNSQUEEZE_S3_REGION") or text("AWS_REGION") or text("AWS_DEFAULT_REGION") or None,
        "endpoint_url": endpoint or None,
    }
    return {"BACKEND": "webapp.core.bucket_storage.BucketStorage", "OPTIONS": options}


def stored_secret(path: Path) -> str:
    """The secret in `path`; made on first use, readable by the owner only. Processes that start together agree on
    one.
    """
    if not path.exists():
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(48))
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return path.read_text(encoding="ascii").strip()
