"""Routes of a team: /t/<team>/..."""

from django.urls import path

from webapp.teams import views

app_name = "teams"

urlpatterns = [path("t/<slug:team>/", views.detail, name="detail")]
