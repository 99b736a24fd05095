"""Routes of one run."""

from django.urls import path

from webapp.projects.routes import in_project
from webapp.runpage import data, views

app_name = "runpage"

urlpatterns = [
    in_project(
        path("runs/<slug:run>/", views.overview, name="overview"),
        path("runs/<slug:run>/squeezing", views.squeezing, name="squeezing"),
        path("runs/<slug:run>/rollouts", views.rollouts, name="rollouts"),
        path("runs/<slug:run>/evaluations", views.evaluations, name="evaluations"),
        path("runs/<slug:run>/config", views.config, name="config"),
        path("runs/<slug:run>/config.json", views.config_file, name="config-file"),
        path("runs/<slug:run>/stop", views.stop, name="stop"),
        path("runs/<slug:run>/resume", views.resume, name="resume"),
        path("runs/<slug:run>/auto-resume", views.auto_resume, name="auto-resume"),
        path("runs/<slug:run>/parts/<slug:part>", views.part, name="part"),
        path("runs/<slug:run>/charts/<slug:chart>", data.chart, name="chart"),
        path("runs/<slug:run>/metric", data.metric, name="metric"),
        path("runs/<slug:run>/metrics.csv", data.metrics_csv, name="metrics-csv"),
        path("runs/<slug:run>/figure", data.figure, name="figure"),
        path("runs/<slug:run>/behind", data.behind, name="behind"),
    ),
]
