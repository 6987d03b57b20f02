"""A proved change as an edit of the source, tried by running it."""
