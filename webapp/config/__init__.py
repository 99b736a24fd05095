"""Settings and entry points of the web application."""

from webapp.config.celery import app as celery_app

__all__ = ["celery_app"]
