"""Finished checks as pages: pure functions from the data of ``--tf-json`` to HTML, with templates and a script."""
