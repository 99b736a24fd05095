"""Settings of the web application, the workers and the scheduler.

Everything that a deployment may change is an environment variable:

    UNSQUEEZE_DATA              folder for the database, runs, checkpoints and secrets     ./data
    UNSQUEEZE_DATABASE_URL      postgresql://user:password@host:port/name                  SQLite in the data folder
    UNSQUEEZE_BROKER_URL        redis://host:port/number                                   files in the data folder
    UNSQUEEZE_SECRET_KEY        signing key                                                made once in the data folder
    UNSQUEEZE_ALLOWED_HOSTS     names under which the pages are served, with commas        localhost
    UNSQUEEZE_TRUSTED_ORIGINS   https://name of each address behind a proxy                none
    UNSQUEEZE_HTTPS             pages are served over HTTPS (secure cookies, HSTS)         no
    UNSQUEEZE_TIME_ZONE         time zone of absolute times                                UTC
    UNSQUEEZE_LOG_LEVEL         DEBUG, INFO, WARNING or ERROR                              INFO
    UNSQUEEZE_DEBUG             error pages with source code; never on a shared machine    no
    UNSQUEEZE_FILES             folder of runs, checkpoints and rollouts, shared by hosts  ./data/files
    UNSQUEEZE_TRAINER_COMMAND   what a worker starts, with blanks between its words        this Python, -m trainer
    UNSQUEEZE_LEASE_SECONDS     a worker silent for longer has lost its run                60
    UNSQUEEZE_STOP_GRACE        least seconds between asking a trainer to stop and killing 60

The URLs and the key may also come from a file: UNSQUEEZE_SECRET_KEY_FILE=/run/secrets/key.
"""

import sys
from pathlib import Path

from webapp.config import env

BASE_DIR = Path(__file__).resolve().parents[2]
DATA_DIR = Path(env.text("UNSQUEEZE_DATA", str(BASE_DIR / "data"))).resolve()
DATA_DIR.mkdir(parents=True, exist_ok=True)

DEBUG = env.flag("UNSQUEEZE_DEBUG")
SECRET_KEY = env.secret("UNSQUEEZE_SECRET_KEY") or env.stored_secret(DATA_DIR / "secret_key")
ALLOWED_HOSTS = env.words("UNSQUEEZE_ALLOWED_HOSTS", ["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.words("UNSQUEEZE_TRUSTED_ORIGINS")

# The apps from low to high: none imports from one that stands after it (`tests/architecture` holds this).
APP_ORDER = (
    "core",
    "accounts",
    "teams",
    "projects",
    "runs",
    "checkpoints",
    "metrics",
    "evals",
    "rollouts",
    "methods",
    "launch",
    "compare",
    "live",
    "runpage",
    "runlist",
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
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
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
CELERY_BEAT_SCHEDULE_FILENAME = str(DATA_DIR / "celerybeat-schedule")
CELERY_BEAT_SCHEDULE = {
    "reap": {"task": "launch.reap", "schedule": 15.0, "options": {"expires": 15}},
    "send-again": {"task": "launch.send_again", "schedule": 15.0, "options": {"expires": 15}},
}
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TIMEZONE = TIME_ZONE

FILES_DIR = Path(env.text("UNSQUEEZE_FILES", str(DATA_DIR / "files"))).resolve()
TRAINER_COMMAND = env.text("UNSQUEEZE_TRAINER_COMMAND").split() or [sys.executable, "-m", "trainer"]
LEASE_SECONDS = env.integer("UNSQUEEZE_LEASE_SECONDS", 60, minimum=5)
STOP_GRACE_SECONDS = env.integer("UNSQUEEZE_STOP_GRACE", 60, minimum=1)

LOG_LEVEL = env.choice("UNSQUEEZE_LOG_LEVEL", "INFO", ("DEBUG", "INFO", "WARNING", "ERROR"))
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname:<7} {name}: {message}", "style": "{"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": LOG_LEVEL},
    "loggers": {
        "django.server": {"handlers": ["stderr"], "propagate": False},
        # The filesystem transport has no host, and kombu says so at every start.
        "kombu.connection": {"level": "ERROR"},
    },
}
