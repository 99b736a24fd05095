"""Routes that belong to no team."""

from django.urls import path

from webapp.core import views

app_name = "core"

urlpatterns = [path("healthz", views.healthz, name="healthz")]
