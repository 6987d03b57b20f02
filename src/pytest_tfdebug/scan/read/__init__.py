"""From files to what they bind: statements by an outline, and libcst for those that matter."""
