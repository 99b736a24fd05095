"""The Celery application.

Two queues: `default` carries runs (one message wakes a worker, which then supervises a trainer for hours), `periodic`
carries the scheduler's short jobs, so that a long supervisor never blocks them. Start one worker for each:

    celery -A webapp.config worker -Q default
    celery -A webapp.config worker -Q periodic
    celery -A webapp.config beat

Messages are JSON, acknowledged after the work, and taken one at a time. Tasks must bear being delivered twice.
"""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.config.settings")

app = Celery("unsqueeze")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
