"""Routes of launching and of the queue."""

from django.urls import path

from webapp.launch import views, views_queue
from webapp.projects.routes import in_project

app_name = "launch"

urlpatterns = [
    in_project(
        path("launch/", views.new, name="new"),
        path("launch/parts", views.parts, name="parts"),
        path("launch/preview", views.preview, name="preview"),
        path("launch/config.json", views.document, name="document"),
        path("launch/fill", views.fill, name="fill"),
        path("queue", views_queue.queue, name="queue"),
    )
]
