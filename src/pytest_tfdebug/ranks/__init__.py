"""Tests on several processes: ``@pytest.mark.tf_ranks(2)``."""
