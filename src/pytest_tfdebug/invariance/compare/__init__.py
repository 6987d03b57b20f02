"""How a repeated call is compared with the original, and how a difference is explained."""
