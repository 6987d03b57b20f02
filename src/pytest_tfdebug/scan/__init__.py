"""Which common tests does each model of a repository skip, and why."""
