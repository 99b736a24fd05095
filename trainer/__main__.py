"""``python -m trainer``: see `trainer.cli`."""

import os
import sys

from trainer.cli import main

if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Everything is on disk; taking torch's modules apart would only delay whoever waits for the exit.
    os._exit(code)
