"""Fixes from the history of libraries: the table of ``utils/real_fixes.py``, one file a library."""

from fixes import denoising_diffusion, diffusers, litgpt, timm, torchtune, x_transformers

FIXES = (
    *x_transformers.FIXES,
    *timm.FIXES,
    *diffusers.FIXES,
    *litgpt.FIXES,
    *torchtune.FIXES,
    *denoising_diffusion.FIXES,
)
