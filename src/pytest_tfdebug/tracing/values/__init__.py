"""What the operators of a forward compute, and how it is known again."""
