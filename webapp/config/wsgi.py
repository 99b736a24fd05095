"""The web application for servers that speak WSGI; pages work, live streams need `asgi`."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.config.settings")

application = get_wsgi_application()
