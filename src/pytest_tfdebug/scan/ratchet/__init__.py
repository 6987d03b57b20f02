"""What changed since an earlier report, and what can be put right in the source."""
