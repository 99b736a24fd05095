"""Every app with a `urls.py` brings its own routes, with its name as namespace; see `webapp.projects.routes` for
the scheme.
"""

from importlib.util import find_spec

from django.conf import settings
from django.urls import include, path

urlpatterns = [
    path("", include(f"webapp.{app}.urls")) for app in settings.APP_ORDER if find_spec(f"webapp.{app}.urls") is not None
]

handler400 = "webapp.core.views.bad_request"
handler403 = "webapp.core.views.permission_denied"
handler404 = "webapp.core.views.not_found"
handler500 = "webapp.core.views.server_error"
