"""How a difference is explained: where it arises, what further runs show, what is probably wrong."""
