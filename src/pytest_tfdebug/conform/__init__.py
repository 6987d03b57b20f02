"""All promises of a model class, kept by one line of a test file."""
