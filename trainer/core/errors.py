"""One root for every error the trainer raises on purpose.

Each child also inherits the standard class it refines, so callers may catch either. Messages say what was found, what
was expected, and which setting to change. Errors are picklable: arguments only, no live objects.
"""


class UnsqueezeError(Exception):
    """Root of all deliberate errors."""


class ConfigError(UnsqueezeError, ValueError):
    """The configuration asks for something that cannot be run."""


class CheckpointError(UnsqueezeError, OSError):
    """A checkpoint or policy folder is missing, incomplete, tampered with, or could not be written."""


class NumericError(UnsqueezeError, ArithmeticError):
    """Training produced a value that must not be used (non-finite loss or weights)."""


class SamplerError(UnsqueezeError, RuntimeError):
    """A sampler cannot serve the request."""


class MethodError(UnsqueezeError, RuntimeError):
    """A method's part broke its protocol or raised; the message names the method and the slot."""


class Superseded(UnsqueezeError):
    """A later attempt of the run has begun; this one saves nothing more."""


class StopRequested(UnsqueezeError):
    """SIGTERM arrived or the parent went away; raised at the next safe point."""


class DatasetError(UnsqueezeError, ValueError):
    """A dataset file cannot be read, or is not what the run was launched with."""
