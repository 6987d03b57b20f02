"""The call that the test made: what was seen of it, its model, the sequences among its inputs."""
