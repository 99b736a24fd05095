"""Values that are stored encrypted: Fernet (AES-128-CBC with HMAC-SHA256) under keys derived from UNSQUEEZE_SECRETS_KEY.

Several keys may be set: the first encrypts, all of them decrypt, so that a key can be replaced without losing anything
(`manage.py rotate_secrets`). Without the setting a key is made once in the data folder. It is another one than the
signing key, which may be replaced at any time. What is stored beside a value is the key's fingerprint, which tells
nothing about it: an error can say which key is missing.
"""

import base64
from dataclasses import dataclass
from functools import cache

from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

HOW = (
    "set UNSQUEEZE_SECRETS_KEY on this host to the key of the host that stored it (several keys: the newest first, with "
    "commas between them)"
)


class KeyMissing(Exception):
    """A stored value cannot be decrypted with the keys of this process; the text says which key it needs."""


@dataclass(frozen=True)
class _Key:
    fingerprint: str
    fernet: Fernet


def encrypt(value: str) -> tuple[str, str]:
    """The value encrypted under the first key, and that key's fingerprint."""
    key = _key(settings.SECRETS_KEYS[0])
    return key.fernet.encrypt(value.encode()).decode("ascii"), key.fingerprint


def decrypt(stored: str, fingerprint: str) -> str:
    """The value. Raises KeyMissing without its key, or when the stored text is damaged."""
    for key in map(_key, settings.SECRETS_KEYS):
        if key.fingerprint == fingerprint:
            try:
                return key.fernet.decrypt(stored.encode("ascii")).decode()
            except InvalidToken as error:
                raise KeyMissing(
                    f"it is damaged: its text is not what key {fingerprint} made of it; store the value again"
                ) from error
    known = ", ".join(fingerprints())
    raise KeyMissing(f"it was encrypted with key {fingerprint}, and the keys known here are {known}; {HOW}")


def fingerprints() -> list[str]:
    """Of the keys of this process, the one that encrypts first."""
    return [_key(text).fingerprint for text in settings.SECRETS_KEYS]


@cache
def _key(text: str) -> _Key:
    return _Key(
        fingerprint=_derived(text, b"unsqueeze secrets fingerprint", 4).hex(),
        fernet=Fernet(base64.urlsafe_b64encode(_derived(text, b"unsqueeze secrets", 32))),
    )


def _derived(text: str, purpose: bytes, length: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=None, info=purpose).derive(text.encode())
