"""A person, and the counter that slows down guessing of passwords."""

from typing import Any, ClassVar

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.models import PermissionsMixin
from django.db import models


class UserManager(BaseUserManager["User"]):
    """Addresses are kept in lower case, so that signing in does not depend on it."""

    def create_user(self, email: str, password: str | None = None, **fields: Any) -> "User":
        if "@" not in email:
            raise ValueError(f"{email!r} is not an e-mail address")
        user = self.model(email=email.strip().lower(), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> "User":
        return self.create_user(email, password, is_superuser=True, **fields)

    def get_by_natural_key(self, username: str | None) -> "User":
        return self.get(email=(username or "").strip().lower())


class User(AbstractBaseUser, PermissionsMixin):
    """Someone who signs in with an e-mail address. What they may do is decided by their teams, never by a flag here."""

    email = models.EmailField(unique=True)
    display_name = models.CharField(max_length=80, blank=True)
    is_active = models.BooleanField(default=True)
    must_choose_password = models.BooleanField(
        default=False, help_text="Signed in with a password that someone else made; is asked for an own one first."
    )
    date_joined = models.DateTimeField(auto_now_add=True)

    objects: ClassVar[UserManager] = UserManager()

    USERNAME_FIELD = "email"
    EMAIL_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        """What pages call this person."""
        return self.display_name or self.email.partition("@")[0]


class SignInFailures(models.Model):
    """How often signing in failed for one key (a digest of an address or a network address) since a moment."""

    key = models.CharField(max_length=64, unique=True)
    count = models.PositiveIntegerField(default=0)
    since = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.count} since {self.since:%H:%M}"
