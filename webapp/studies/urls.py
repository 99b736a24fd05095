"""Routes of studies."""

from django.urls import path

from webapp.projects.routes import in_project
from webapp.studies import views

app_name = "studies"

urlpatterns = [
    in_project(
        path("studies/", views.index, name="index"),
        path("studies/launch", views.launch, name="launch"),
        path("studies/<int:study>/", views.detail, name="detail"),
        path("studies/<int:study>/grid", views.grid, name="grid"),
        path("studies/<int:study>/stop", views.stop, name="stop"),
        path("studies/<int:study>/<slug:figure>.json", views.figure, name="figure"),
    )
]
