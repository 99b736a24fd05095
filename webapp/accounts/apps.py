"""Registration of the app."""

from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "webapp.accounts"
