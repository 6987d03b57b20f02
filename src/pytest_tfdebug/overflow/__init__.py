"""Watch a forward and its backward for values that are not finite, or soon will not be."""
