"""Routes of a team: /t/<team>/..."""

from django.urls import path

from webapp.teams import views, views_members

app_name = "teams"

urlpatterns = [
    path("t/<slug:team>/", views.detail, name="detail"),
    path("t/<slug:team>/members", views_members.members, name="members"),
    path("t/<slug:team>/members/<int:membership>/change", views_members.change_member, name="change-member"),
    path("t/<slug:team>/members/<int:membership>/remove", views_members.remove_member, name="remove-member"),
    path("t/<slug:team>/secrets", views.secrets, name="secrets"),
    path("t/<slug:team>/secrets/<slug:name>/delete", views.delete_secret, name="delete-secret"),
]
