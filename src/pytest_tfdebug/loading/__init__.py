"""Did every tensor of a checkpoint arrive in a model: found by numbers, whatever the names."""
