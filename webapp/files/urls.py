"""Routes of the page of orphans."""

from django.urls import path

from webapp.files import views
from webapp.projects.routes import in_project

app_name = "files"

urlpatterns = [in_project(path("checkpoints/orphans", views.orphans, name="orphans"))]
