"""Settings of the web application, the workers and the scheduler.

Everything that a deployment may change is an environment variable:

    UNSQUEEZE_DATA              folder for the database, runs, checkpoints and secrets     ./data
    UNSQUEEZE_DATABASE_URL      postgresql://user:password@host:port/name                  SQLite in the data folder
    UNSQUEEZE_BROKER_URL        redis://host:port/number                                   files in the data folder
    UNSQUEEZE_SECRET_KEY        signing key                                                made once in the data folder
    UNSQUEEZE_SECRETS_KEY       encrypts team secrets; several with commas, newest first   made once in the data folder
    UNSQUEEZE_ALLOWED_HOSTS     names under which the pages are served, with commas        localhost
    UNSQUEEZE_TRUSTED_ORIGINS   https://name of each address behind a proxy                none
    UNSQUEEZE_HTTPS             pages are served over HTTPS (secure cookies, HSTS)         no
    UNSQUEEZE_TIME_ZONE         time zone of absolute times                                UTC
    UNSQUEEZE_LOG_LEVEL         DEBUG, INFO, WARNING or ERROR                              INFO
    UNSQUEEZE_DEBUG             error pages with source code; never on a shared machine    no
    UNSQUEEZE_FILES             folder of runs, checkpoints and rollouts, shared by hosts  ./data/files
    UNSQUEEZE_STORAGE_URL       s3://bucket/prefix; the folder above is then a working copy  none: that folder
    UNSQUEEZE_S3_ENDPOINT_URL   of a bucket that is not Amazon's; also UNSQUEEZE_S3_REGION, UNSQUEEZE_S3_ACCESS_KEY_ID
                                and UNSQUEEZE_S3_SECRET_ACCESS_KEY                         the AWS_ variables
    UNSQUEEZE_CACHE_GB          with a bucket: what copies of it a host keeps at most      100
    UNSQUEEZE_UPLOAD_PATIENCE   with a bucket: seconds that an ended run waits for its files to be stored  300
    UNSQUEEZE_UPLOAD_GB         largest dataset file or model that is taken as an upload   20
    UNSQUEEZE_IMPORT_FOLDERS    folders of this host from which the API imports models, with commas  none
    UNSQUEEZE_TRAINER_COMMAND   what a worker starts, with blanks between its words        this Python, -m trainer
    UNSQUEEZE_LEASE_SECONDS     a worker silent for longer has lost its run                60
    UNSQUEEZE_STOP_GRACE        least seconds between asking a trainer to stop and killing 60
    UNSQUEEZE_QUEUES            queues that runs may name, beside those of live workers    default
    UNSQUEEZE_AUTO_RESUME       automatic resumes in a row without a new checkpoint; 0: no 3
    UNSQUEEZE_RESUME_PAUSE      seconds before the first of them; each next waits double   10
    UNSQUEEZE_BROKER_VISIBILITY seconds until Redis delivers an unacknowledged message anew 21600
    UNSQUEEZE_RESEND_SECONDS    a queued run's message counts as lost after; then double   30

The URLs and the keys may also come from a file: UNSQUEEZE_SECRET_KEY_FILE=/run/secrets/key.
"""

import sys
import tomllib
from pathlib import Path

from webapp.config import env

BASE_DIR = Path(__file__).resolve().parents[2]
VERSION: str = tomllib.loads((BASE_DIR / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
DATA_DIR = Path(env.text("UNSQUEEZE_DATA", str(BASE_DIR / "data"))).resolve()
DATA_DIR.mkdir(parents=True, exist_ok=True)

DEBUG = env.flag("UNSQUEEZE_DEBUG")
SECRET_KEY = env.secret("UNSQUEEZE_SECRET_KEY") or env.stored_secret(DATA_DIR / "secret_key")
SECRETS_KEYS = env.keys("UNSQUEEZE_SECRETS_KEY") or env.split(env.stored_secret(DATA_DIR / "secrets_key"))
ALLOWED_HOSTS = env.words("UNSQUEEZE_ALLOWED_HOSTS", ["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.words("UNSQUEEZE_TRUSTED_ORIGINS")

# The apps from low to high: none imports from one that stands after it (`tests/architecture` holds this).
APP_ORDER = (
    "core",
    "accounts",
    "teams",
    "projects",
    "runs",
    "datasets",
    "checkpoints",
    "metrics",
    "evals",
    "rollouts",
    "methods",
    "launch",
    "studies",
    "compare",
    "live",
    "runpage",
    "runlist",
    "files",
    "api",
    "backup",
    "demo",
)

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "django_htmx",
    "rest_framework",
    "drf_spectacular",
    *(f"webapp.{name}" for name in APP_ORDER),
]

MIDDLEWARE = [
    "webapp.core.middleware.ServerTimingMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "webapp.core.middleware.SecurityHeadersMiddleware",
    "webapp.core.middleware.StaticFilesMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    # Closed by default: a view that anyone may see says so with @login_not_required.
    "webapp.accounts.middleware.SignedInMiddleware",
    "webapp.accounts.middleware.ChoosePasswordMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

ROOT_URLCONF = "webapp.config.urls"
ASGI_APPLICATION = "webapp.config.asgi.application"
WSGI_APPLICATION = "webapp.config.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": False,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "webapp.projects.context.navigation",
            ],
            "builtins": ["webapp.core.templatetags.figures", "django.templatetags.static"],
        },
    },
]

DATABASES = {"default": env.database("UNSQUEEZE_DATABASE_URL", data=DATA_DIR)}
# Curves and intervals, which are functions of rows that never change. A few hundred bytes each.
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.locmem.LocMemCache",
        "OPTIONS": {"MAX_ENTRIES": 20_000},
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTH_USER_MODEL = "accounts.User"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "accounts:sign-in"
LOGIN_REDIRECT_URL = "projects:index"
LOGOUT_REDIRECT_URL = "accounts:sign-in"
SESSION_COOKIE_AGE = 30 * 24 * 3600
SESSION_COOKIE_NAME = "unsqueeze_session"
CSRF_COOKIE_NAME = "unsqueeze_csrf"
CSRF_FAILURE_VIEW = "webapp.core.views.csrf_failure"

WHITENOISE_ALLOW_ALL_ORIGINS = False
STATIC_URL = "/static/"
STATIC_ROOT = DATA_DIR / "static"
STATIC_ROOT.mkdir(exist_ok=True)
STATICFILES_DIRS = [BASE_DIR / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "webapp.core.finders.VendorFinder",
]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "webapp.core.storage.StaticStorage"},
    "files": env.file_storage("UNSQUEEZE_STORAGE_URL"),
}

# Everything that a page loads comes from this server, and no script or style stands inside a page.
CONTENT_SECURITY_POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data: blob:",
    "font-src": "'self'",
    "connect-src": "'self'",
    "form-action": "'self'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
}
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CONTENT_TYPE_NOSNIFF = True
HTTPS = env.flag("UNSQUEEZE_HTTPS")
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
SECURE_HSTS_SECONDS = 30 * 24 * 3600 if HTTPS else 0
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS else None

REST_FRAMEWORK = {
    # The first one's challenge stands in answers of 401.
    "DEFAULT_AUTHENTICATION_CLASSES": ["webapp.api.auth.TokenAuthentication", "webapp.api.auth.BrowserAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["webapp.api.parsing.StrictJSONParser"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "webapp.api.parsing.AnyAccept",
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "webapp.api.errors.handle",
    "URL_FORMAT_OVERRIDE": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Unsqueeze",
    "VERSION": "1",
    "DESCRIPTION": "Launch, watch, stop, resume and compare runs. docs/api.md explains tokens, errors, pages and retries.",
    "OAS_VERSION": "3.1.0",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "webapp.api.openapi.complete",
    ],
    "COMPONENT_SPLIT_REQUEST": True,
    # What a PATCH must hold stands in its serializer.
    "COMPONENT_SPLIT_PATCH": False,
    "ENUM_NAME_OVERRIDES": {
        "RunState": "webapp.runs.states.RunState.values",
        "EndState": "webapp.api.serializers.remote.ENDS",
        "StateFilter": "webapp.api.serializers.runs.STATE_FILTERS",
        "NonFinite": "webapp.api.serializers.figures.NONFINITE",
        "FigureKind": "webapp.api.serializers.figures.FIGURES",
        "KindEnum": "webapp.runs.models.RunKind.values",
    },
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "ENUM_ADD_EXPLICIT_BLANK_NULL_CHOICE": False,
}

LANGUAGE_CODE = "en"
USE_I18N = False
USE_TZ = True
TIME_ZONE = env.text("UNSQUEEZE_TIME_ZONE", "UTC")

CELERY_BROKER_URL, CELERY_BROKER_TRANSPORT_OPTIONS = env.broker("UNSQUEEZE_BROKER_URL", data=DATA_DIR)
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_TASK_DEFAULT_QUEUE = "default"
# Who launches must not wait long for a broker that is away: the scheduler sends the message again.
CELERY_TASK_PUBLISH_RETRY_POLICY = {"max_retries": 1, "interval_start": 0, "interval_step": 0.2, "interval_max": 0.2}
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TIMEZONE = TIME_ZONE

FILES_DIR = Path(env.text("UNSQUEEZE_FILES", str(DATA_DIR / "files"))).resolve()
UPLOAD_LIMIT_BYTES = env.integer("UNSQUEEZE_UPLOAD_GB", 20, minimum=1) * 10**9
IMPORT_FOLDERS = env.words("UNSQUEEZE_IMPORT_FOLDERS")
CACHE_BYTES = env.integer("UNSQUEEZE_CACHE_GB", 100, minimum=1) * 10**9
UPLOAD_PATIENCE_SECONDS = env.integer("UNSQUEEZE_UPLOAD_PATIENCE", 300, minimum=0)
TRAINER_COMMAND = env.text("UNSQUEEZE_TRAINER_COMMAND").split() or [sys.executable, "-m", "trainer"]
LEASE_SECONDS = env.integer("UNSQUEEZE_LEASE_SECONDS", 60, minimum=5)
QUEUES = env.words("UNSQUEEZE_QUEUES", ["default"])
AUTO_RESUME = env.integer("UNSQUEEZE_AUTO_RESUME", 3, minimum=0)
RESUME_PAUSE = env.integer("UNSQUEEZE_RESUME_PAUSE", 10, minimum=0)
RESEND_SECONDS = env.integer("UNSQUEEZE_RESEND_SECONDS", 30, minimum=1)
STOP_GRACE_SECONDS = env.integer("UNSQUEEZE_STOP_GRACE", 60, minimum=1)

DEFAULT_EXCEPTION_REPORTER_FILTER = "webapp.core.logs.ExceptionFilter"
LOG_LEVEL = env.choice("UNSQUEEZE_LOG_LEVEL", "INFO", ("DEBUG", "INFO", "WARNING", "ERROR"))
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {
            "()": "webapp.core.logs.Formatter",
            "format": "{asctime} {levelname:<7} {name}: {message}",
            "style": "{",
        }
    },
    "filters": {"refusals": {"()": "webapp.core.logs.Refusals"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["refusals"]}},
    "root": {"handlers": ["stderr"], "level": LOG_LEVEL},
    "loggers": {
        "django.server": {"handlers": ["stderr"], "propagate": False},
        # The filesystem transport has no host, and kombu says so at every start.
        "kombu.connection": {"level": "ERROR"},
    },
}
