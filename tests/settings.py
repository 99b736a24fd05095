"""The application's settings with a data folder of its own, fast password hashing and no collected static files."""

import os
import tempfile

os.environ["UNSQUEEZE_DATA"] = tempfile.mkdtemp(prefix="unsqueeze-tests-")

from webapp.config.settings import *  # noqa: F403
from webapp.config.settings import STORAGES

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
STORAGES = {**STORAGES, "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}}
