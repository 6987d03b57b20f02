"""A model call goes in, asked again in another way; the answer must not change."""
