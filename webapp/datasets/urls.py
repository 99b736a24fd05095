"""Routes of datasets."""

from django.urls import path

from webapp.datasets import views, views_import
from webapp.projects.routes import in_project

app_name = "datasets"

urlpatterns = [
    in_project(
        path("datasets/", views.index, name="index"),
        path("datasets/new", views_import.upload, name="new"),
        path("datasets/new/begin", views_import.begin, name="begin"),
        path("datasets/<int:dataset>/begin", views_import.begin, name="begin-version"),
        path("datasets/imports/<int:job>/piece", views_import.piece, name="piece"),
        path("datasets/imports/<int:job>/complete", views_import.finish, name="complete"),
        path("datasets/<int:dataset>/", views.detail, name="detail"),
        path("datasets/<int:dataset>/new-version", views_import.upload, name="new-version"),
        path("datasets/<int:dataset>/archive", views.archive, name="archive"),
        path("datasets/<int:dataset>/delete", views.delete, name="delete"),
        path("datasets/versions/<int:version>/", views.version, name="version"),
        path("datasets/versions/<int:version>/rows", views.rows, name="rows"),
        path("datasets/versions/<int:version>/rows.parquet", views.download, name="download"),
        path("datasets/versions/<int:version>/delete", views.delete_version, name="delete-version"),
        path("datasets/imports/<int:job>/", views_import.progress, name="import"),
        path("datasets/imports/<int:job>/mapping", views_import.mapping, name="mapping"),
        path("datasets/imports/<int:job>/preview", views_import.preview, name="preview"),
        path("datasets/imports/<int:job>/again", views_import.again, name="again"),
        path("datasets/imports/<int:job>/discard", views_import.discard, name="discard"),
    )
]
