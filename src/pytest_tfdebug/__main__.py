"""``python -m pytest_tfdebug``: the command ``tfdebug``."""

from pytest_tfdebug.command import main

if __name__ == "__main__":
    raise SystemExit(main())
