"""What a team's secret may be called: it becomes an environment variable of the runs that name it."""

import re

from django.core.exceptions import ValidationError

PATTERN = re.compile(r"[A-Z][A-Z0-9_]{1,63}")
RESERVED = frozenset((
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "IFS", "ENV", "CDPATH", "PWD",
    "VIRTUAL_ENV", "HF_HOME", "HF_ENDPOINT", "TOKENIZERS_PARALLELISM", "HOSTNAME", "TERM",
))  # fmt: skip
RESERVED_PREFIXES = (
    "LD_", "DYLD_", "PYTHON", "UNSQUEEZE_", "DJANGO_", "CUDA_", "NVIDIA_", "NCCL_", "ROCM_", "HIP_", "OMP_", "MKL_",
    "KMP_", "OPENBLAS_", "TORCH", "PYTORCH_", "LC_", "MALLOC_", "GLIBC_", "GCONV_", "SSL_", "PIP_", "BASH_",
)  # fmt: skip


def check_name(name: str) -> None:
    """Raises ValidationError for a name that no secret may have: it is no variable's, or decides how programs run."""
    if not PATTERN.fullmatch(name):
        raise ValidationError(
            f"{name!r} cannot be the name of a secret; expected 2 to 64 of A-Z, 0-9 and _, a letter first, such as "
            "HF_TOKEN.",
            code="secret_name",
        )
    if name in RESERVED or name.startswith(RESERVED_PREFIXES):
        raise ValidationError(
            f"{name} is reserved: programs or Unsqueeze itself read that variable; choose another name.",
            code="secret_name_reserved",
        )
