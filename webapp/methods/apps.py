"""Registration of the app."""

from django.apps import AppConfig


class MethodsConfig(AppConfig):
    name = "webapp.methods"
