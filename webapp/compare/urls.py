"""Routes of the compare page."""

from django.urls import path

from webapp.compare import views
from webapp.projects.routes import in_project

app_name = "compare"

urlpatterns = [
    in_project(
        path("compare/", views.index, name="index"),
        path("compare/passk.json", views.passk, name="passk"),
        path("compare/metric.json", views.metric, name="metric"),
    )
]
