"""Two tensors, or two lists of outputs, held to a tolerance."""
