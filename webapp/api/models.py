"""What was answered to requests that carry an idempotency key."""

from django.conf import settings
from django.db import models


class Answer(models.Model):
    """The answer to a person's first request with a key. Written in the transaction of what the request made.

    `request` is the digest of method, address and body: the key belongs to that request alone.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=200)
    request = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField(default=0)
    body = models.JSONField(null=True)
    created_at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "key"], name="one_answer_per_key")]

    def __str__(self) -> str:
        return f"{self.status} to {self.key}"
