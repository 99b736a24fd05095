"""Registration of the app."""

from django.apps import AppConfig


class RunsConfig(AppConfig):
    name = "webapp.runs"
