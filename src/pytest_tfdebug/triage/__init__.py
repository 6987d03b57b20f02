"""Which kind of failure a failed test is, the smallest fix and the next diagnostic step.

Nothing here is imported before a test fails, unless a flag or marker of ours asks for it.
"""
