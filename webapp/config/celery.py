"""The Celery application.

One task, `launch.supervise`: a message wakes a worker, which then supervises a trainer for hours. A run's queue is the
message's queue; `manage.py worker --queues …` says which of them a worker serves. Periodic work needs no broker: it is
`manage.py scheduler`.

Messages are JSON, acknowledged after the work, and taken one at a time: a worker whose slots are busy holds no message
that another could take. Tasks must bear being delivered twice.
"""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.config.settings")

app = Celery("unsqueeze")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
