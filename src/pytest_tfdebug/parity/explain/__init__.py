"""Why a forward differs: changes of one place that are tried on it, until one gives what was expected."""
