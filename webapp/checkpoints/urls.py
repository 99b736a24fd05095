"""Routes of checkpoints."""

from django.urls import path

from webapp.checkpoints import views, views_upload
from webapp.projects.routes import in_project

app_name = "checkpoints"

urlpatterns = [
    in_project(
        path("checkpoints/", views.index, name="index"),
        path("checkpoints/retention", views.retention_rule, name="retention"),
        path("checkpoints/upload", views_upload.page, name="upload"),
        path("checkpoints/uploads/", views_upload.begin, name="upload-begin"),
        path("checkpoints/uploads/<slug:upload>/piece", views_upload.piece, name="upload-piece"),
        path("checkpoints/uploads/<slug:upload>/complete", views_upload.finish, name="upload-complete"),
        path("checkpoints/uploads/<slug:upload>/discard", views_upload.discard, name="upload-discard"),
        path("checkpoints/<int:checkpoint>/", views.detail, name="detail"),
        path("checkpoints/<int:checkpoint>/all.tar", views.download, name="download"),
        path("checkpoints/<int:checkpoint>/files/<path:name>", views.file, name="file"),
        path("checkpoints/<int:checkpoint>/verify", views.verify, name="verify"),
        path("checkpoints/<int:checkpoint>/pin", views.pin, name="pin"),
        path("checkpoints/<int:checkpoint>/delete", views.delete, name="delete"),
    )
]
