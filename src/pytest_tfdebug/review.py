"""``python -m pytest_tfdebug.review``: go through the goldens that ``--tf-golden=pending`` left to be reviewed."""

from pytest_tfdebug.goldens.review import main

if __name__ == "__main__":
    raise SystemExit(main())
