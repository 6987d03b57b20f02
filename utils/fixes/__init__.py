"""Fixes from the history of libraries: the table of ``utils/real_fixes.py``, one file a library."""

from fixes import (
    alphafold2,
    asteroid,
    bs_roformer,
    denoising_diffusion,
    diffusers,
    litgpt,
    open_clip,
    perceiver_pytorch,
    speechbrain,
    timm,
    torchtune,
    vit_pytorch,
    x_transformers,
)

FIXES = (
    *x_transformers.FIXES,
    *timm.FIXES,
    *diffusers.FIXES,
    *litgpt.FIXES,
    *torchtune.FIXES,
    *denoising_diffusion.FIXES,
    *vit_pytorch.FIXES,
    *open_clip.FIXES,
    *bs_roformer.FIXES,
    *asteroid.FIXES,
    *speechbrain.FIXES,
    *alphafold2.FIXES,
    *perceiver_pytorch.FIXES,
)
