"""Registration of the app."""

from django.apps import AppConfig


class MetricsConfig(AppConfig):
    name = "webapp.metrics"
