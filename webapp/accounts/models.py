"""A person, their access tokens, and the counter that slows down guessing of passwords and tokens."""

from datetime import datetime
from typing import Any, ClassVar

from django.conf import settings
from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.models import PermissionsMixin
from django.db import models

TOKEN_PREFIX = "unsq_"


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


class Scope(models.TextChoices):
    """What a token may be used for, each on its own. Never more than the person's own role allows."""

    READ = "read", "See everything"
    LAUNCH = "launch", "Launch, stop and resume runs, and send events of remote trainers"
    WRITE = "write", "Change what is in a project"
    MANAGE = "manage", "Make projects, and change teams"


class AccessToken(models.Model):
    """A key to the API for programs of one person: `unsq_<public id>_<secret>`, of which only a digest is kept.

    `within` is the address of a team ("lab") or project ("lab/countdown") beyond which it opens nothing; empty: all
    of the person's teams.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="access_tokens")
    name = models.CharField(max_length=80)
    public_id = models.CharField(max_length=16, unique=True)
    digest = models.CharField(max_length=64)
    scopes = models.JSONField()
    within = models.CharField(max_length=81, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at", "-pk"]

    def __str__(self) -> str:
        return self.name

    @property
    def hint(self) -> str:
        """The part that is no secret, as people recognise a token in a file of theirs."""
        return f"{TOKEN_PREFIX}{self.public_id}_…"

    def ended(self, now: datetime) -> str:
        """ "revoked", "expired", or nothing."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at <= now else ""

    def opens(self, team: str, project: str = "") -> bool:
        """Whether `within` lets the token into this team or project."""
        address = f"{team}/{project}" if project else team
        return not self.within or address == self.within or address.startswith(f"{self.within}/")
