"""Fixes from the history of libraries: the table of ``utils/real_fixes.py``, one file a library."""

from fixes import diffusers, timm, x_transformers

FIXES = (*x_transformers.FIXES, *timm.FIXES, *diffusers.FIXES)
