"""Evaluation sets and evaluations."""

import hashlib
import json
from functools import cached_property
from typing import Any

from django.db import models

from webapp.projects.models import Project
from webapp.runs.models import Run


class EvaluationSet(models.Model):
    """What is measured: `uid` is the hash of problems, checker version, sampling settings and n.

    `problems` is a list of {"uid", "text", "answer", "chance"}; chance is the exact success probability of the policy
    that knows the format but not the task, or null.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="evaluation_sets")
    uid = models.CharField(max_length=80)
    task = models.CharField(max_length=60)
    split = models.CharField(max_length=10)
    checker_version = models.CharField(max_length=80)
    sampler = models.JSONField()
    n = models.PositiveIntegerField()
    problems = models.JSONField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "uid"], name="one_evaluation_set_per_project")]

    def __str__(self) -> str:
        return f"{self.task}, {self.split}, n = {self.n}"


class Evaluation(models.Model):
    """Counts of one policy on one set. Immutable but for `retired`; nothing in it is a ready-made pass@k.

    `counts` is {"uid": [...], "n": [...], "c": [...], "truncated": [...], "forms": [[...], ...]}, one entry a
    problem; `forms` are the counts of distinct canonical forms among its correct samples. `answers` is, in the same
    order, [[key, count, correct], ...]. `webapp.evals.selectors.event_of` gives the trainer's event back.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="evaluations")
    attempt = models.PositiveIntegerField()
    iteration = models.PositiveIntegerField()
    name = models.CharField(max_length=60)
    policy = models.CharField(max_length=60, default="policy")
    set = models.ForeignKey(EvaluationSet, on_delete=models.RESTRICT, related_name="evaluations")
    weights_hash = models.CharField(max_length=80)
    seed = models.BigIntegerField(null=True, help_text="Of the draws; null where the trainer did not say.")
    engine = models.CharField(max_length=120, blank=True)
    tokens = models.BigIntegerField(null=True)
    fingerprint = models.CharField(max_length=64, blank=True, help_text="As the trainer that measured it gave it.")
    reused = models.BooleanField(default=False)
    source_run = models.CharField(max_length=40, blank=True, help_text="Where a reused one was measured, if known.")
    source_attempt = models.PositiveIntegerField(default=0)
    source_iteration = models.PositiveIntegerField(default=0)
    counts = models.JSONField()
    answers = models.JSONField()
    mean_length = models.FloatField(null=True)
    token_entropy = models.FloatField(null=True)
    created_at = models.DateTimeField()
    live_seq = models.BigIntegerField()
    retired = models.BooleanField(default=False)

    class Meta:
        ordering = ["iteration", "attempt", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["run", "attempt", "iteration", "name", "policy", "set"], name="one_evaluation_per_iteration"
            )
        ]
        indexes = [
            models.Index(fields=["run", "live_seq"], name="evaluation_by_seq"),
            models.Index(fields=["set", "weights_hash"], name="evaluation_by_weights"),
        ]

    def __str__(self) -> str:
        return f"{self.name} at iteration {self.iteration}"

    @cached_property
    def pairs(self) -> list[tuple[int, int]]:
        """(n, c) of each problem, in the order of `counts`."""
        return list(zip(self.counts["n"], self.counts["c"], strict=True))

    @cached_property
    def by_uid(self) -> dict[str, dict[str, Any]]:
        """n, c, truncated and forms of each problem by its uid."""
        names = ("n", "c", "truncated", "forms")
        columns = [self.counts[name] for name in names]
        return {
            uid: dict(zip(names, row, strict=True))
            for uid, row in zip(self.counts["uid"], zip(*columns, strict=True), strict=True)
        }

    @cached_property
    def digest(self) -> str:
        """Of the counts: what computed results are kept under."""
        return hashlib.blake2b(json.dumps(self.counts, sort_keys=True).encode(), digest_size=16).hexdigest()

    @property
    def samples(self) -> int:
        """The largest k for which every problem has an unbiased pass@k."""
        return min(self.counts["n"], default=0)

    @property
    def truncated_share(self) -> float | None:
        total = sum(self.counts["n"])
        return sum(self.counts["truncated"]) / total if total else None
