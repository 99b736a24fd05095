"""Routes of the library."""

from django.urls import path

from webapp.methods import views
from webapp.projects.routes import in_project

app_name = "methods"

urlpatterns = [
    in_project(
        path("methods/", views.index, name="index"),
        path("methods/<slug:slug>/", views.method, name="method"),
        path("methods/<slug:slug>/<slug:figure>.json", views.figure, name="figure"),
    )
]
