"""Routes of projects; `webapp.projects.routes` describes the scheme."""

from django.urls import path

from webapp.projects import views
from webapp.projects.routes import in_project

app_name = "projects"

urlpatterns = [
    path("", views.index, name="index"),
    path("t/<slug:team>/projects/new", views.new, name="new"),
    in_project(path("", views.home, name="home")),
]
