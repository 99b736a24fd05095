"""Routes of live streams."""

from django.urls import path

from webapp.live import views
from webapp.projects.routes import in_project

app_name = "live"

urlpatterns = [in_project(path("runs/<slug:run>/stream", views.stream, name="stream"))]
