"""Log lines without credentials: whatever a library puts into a message or an exception."""

import logging
import re
from urllib.parse import quote

from django.conf import settings
from django.views.debug import SafeExceptionReporterFilter

HIDDEN = "[hidden]"
_NAMES = (
    "password|passwd|secret|secret_key|secret_access_key|access_key|api_?key|token|sessionid|unsqueeze_session|"
    "unsqueeze_csrf|csrfmiddlewaretoken|X-Amz-Signature"
)
# What stands before a credential stays, so that a line still says what it is about.
_PATTERNS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?P<before>[a-z][a-z0-9+.-]*://[^\s/:@'\"]*:)[^\s@'\"]+(?=@)",
        r"(?P<before>\bauthorization['\"]?\s*[:=]\s*['\"]?(?:(?:bearer|basic|token)\s+)?)[^\s'\",;]+",
        r"(?P<before>\bbearer\s+)[a-z0-9._~+/=-]{8,}",
        rf"(?P<before>\b(?:{_NAMES})['\"]?\s*=\s*)(?:'[^']*'|\"[^\"]*\"|[^\s'\",;&)]+)",
        rf"(?P<before>['\"](?:{_NAMES})['\"]\s*:\s*)(?:'[^']*'|\"[^\"]*\")",
        r"(?P<before>)\b(?:hf_|sk-|gh[pousr]_|github_pat_|xox[abeoprs]-)[a-z0-9_-]{10,}",
        r"(?P<before>)\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    )
)


def without_credentials(text: str) -> str:
    """The text with this installation's own credentials, and what looks like anyone's, replaced by "[hidden]"."""
    for value in _own():
        text = text.replace(value, HIDDEN)
    for pattern in _PATTERNS:
        text = pattern.sub(rf"\g<before>{HIDDEN}", text)
    return text


def _own() -> set[str]:
    """Values from the settings that must not be seen, as they are and as URLs write them."""
    found = {str(key) for key in (settings.SECRET_KEY, *settings.SECRETS_KEYS, *settings.SECRET_KEY_FALLBACKS)}
    found |= {str(database.get("PASSWORD") or "") for database in settings.DATABASES.values()}
    found |= {str(storage.get("OPTIONS", {}).get("secret_key") or "") for storage in settings.STORAGES.values()}
    # A short one stands in ordinary words; the patterns find it where it is a credential.
    return {form for value in found if len(value) >= 8 for form in (value, quote(value, safe=""))}


class Formatter(logging.Formatter):
    """Ordinary lines, tracebacks included, without credentials."""

    def format(self, record: logging.LogRecord) -> str:
        return without_credentials(super().format(record))


class Refusals(logging.Filter):
    """Answers below 500 are told without a traceback, so that those of faults are found."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.startswith("django.") and getattr(record, "status_code", 500) < 500:
            record.exc_info = record.exc_text = None
        return True


class ExceptionFilter(SafeExceptionReporterFilter):
    """Django's error page (UNSQUEEZE_DEBUG) hides settings by their names; ours with addresses hold passwords too."""

    hidden_settings = re.compile(
        r"API|AUTH|TOKEN|KEY|SECRET|PASS|SIGNATURE|HTTP_COOKIE|BROKER|DATABASE|STORAGES|TRANSPORT", flags=re.IGNORECASE
    )
