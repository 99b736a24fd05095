"""Routes for signing in and out."""

from django.urls import path

from webapp.accounts import views

app_name = "accounts"

urlpatterns = [
    path("sign-in", views.sign_in, name="sign-in"),
    path("sign-out", views.sign_out, name="sign-out"),
    path("password", views.choose_password, name="choose-password"),
]
