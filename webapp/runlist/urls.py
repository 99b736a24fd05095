"""The route of the run list."""

from django.urls import path

from webapp.projects.routes import in_project
from webapp.runlist import views

app_name = "runlist"

urlpatterns = [in_project(path("runs/", views.index, name="index"))]
