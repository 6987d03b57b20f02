"""A hand-written ConvNeXt whose norm and pointwise layers stay in NCHW, where the reference permutes to NHWC."""

from __future__ import annotations

import re

import torch
from cases import Bug, Case, Port, shaken
from conversion import carried, names_of
from transformers import ConvNextConfig, ConvNextForImageClassification

MODULE = "handwritten.channels_first"
#: The parts of the trunk as (stage, layer) of the reference; a downsampling has no layer.


def build(load):
    config = ConvNextConfig(
        num_stages=2, hidden_sizes=[8, 16], depths=[2, 2], patch_size=2, num_labels=5, layer_scale_init_value=1.0
    )
    reference = shaken(ConvNextForImageClassification(config))
    port = load(MODULE).ChannelsFirst([8, 16], [2, 2], 2, 5).eval()
    port = carried(port, reference, [*names_of(PORT.rename), *NAMES], widened)
    pixels = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    return Case(reference, port, reference_kwargs={"pixel_values": pixels}, port_args=(pixels,))


NAMES = (
    (r"^convnext\.encoder\.stages\.1\.downsampling_layer\.0", "trunk.2.norm"),
    (r"^convnext\.encoder\.stages\.1\.downsampling_layer\.1\.weight", "trunk.2.kernel"),
    (r"^convnext\.encoder\.stages\.1\.downsampling_layer\.1\.bias", "trunk.2.bias"),
    (r"^convnext\.layernorm\.", ""),
    (r"layer_scale_parameter", "strength"),
    (r"dwconv", "depth"),
    (r"pwconv1", "grow"),
    (r"pwconv2", "shrink"),
    (r"layernorm", "norm"),
    (r"norm\.weight", "norm.slope"),
    (r"norm\.bias", "norm.level"),
)
#: Parameters of the reference that have one axis fewer than the port's, for each pixel: norms, and pointwise layers.
PER_CHANNEL = re.compile(r"\.(layernorm|downsampling_layer\.0)\.|pwconv\d\.weight")


def widened(weights):
    wide = [name for name in weights if PER_CHANNEL.search(name) and not name.startswith("convnext.layernorm")]
    return weights | {name: weights[name][..., None, None] for name in wide}


def mirror_kernel(part):
    """Load the depthwise kernels with height and width exchanged."""
    with torch.no_grad():
        part.depth.weight.copy_(part.depth.weight.mT.clone())


def forget_strength(part):
    """Leave the layer scale at one."""
    with torch.no_grad():
        part.strength.fill_(1.0)


BUGS = (
    Bug("padding on one side", ("",), MODULE, "(3, 3, 3, 3)", "(2, 4, 2, 4)", shows=("self.depth(padded)",)),
    Bug(
        "reflected padding",
        ("",),
        MODULE,
        "(3, 3, 3, 3))",
        "(3, 3, 3, 3), mode='reflect')",
        shows=("self.depth(padded)",),
    ),
    Bug("norm over the image", ("norm",), MODULE, "image.mean(1, keepdim=True)", "image.mean((2, 3), keepdim=True)"),
    Bug(
        "norm without the mean",
        ("norm",),
        MODULE,
        "centred = image - image.mean(1, keepdim=True)",
        "centred = image",
        shows=("spread = centred.square()",),
    ),
    Bug("epsilon", ("norm",), MODULE, "torch.rsqrt(spread + 1e-6)", "torch.rsqrt(spread + 1e-2)"),
    Bug(
        "norm skipped",
        ("",),
        MODULE,
        "        change = self.norm(change)\n",
        "",
        reference_lines=("self.layernorm(features)", "super().forward(features)"),
    ),
    Bug("quick gelu", ("",), MODULE, "change = gelu(change)", "change = change * (1.702 * change).sigmoid()"),
    Bug(
        "activation after shrinking",
        ("",),
        MODULE,
        "change = gelu(change)\n        change = self.shrink(change)",
        "change = self.shrink(change)\n        change = gelu(change)",
    ),
    Bug(
        "strength along the width",
        ("",),
        MODULE,
        "change * self.strength[:, None, None]",
        "change * self.strength[:8][None, None, :change.shape[3]]",
    ),
    Bug(
        "residual missing",
        ("",),
        MODULE,
        "return image + change",
        "return change",
        reference_lines=("features = residual + self.drop_path(features)",),
    ),
    Bug(
        "residual before the padding's norm", ("",), MODULE, "return image + change", "return self.norm(image) + change"
    ),
    Bug(
        "norm missing before the convolution",
        ("trunk.2",),
        MODULE,
        "image = self.norm(image)\n        return conv2d",
        "return conv2d",
        in_layer=False,
        reference_lines=("features = layer(features)", "super().forward(features)"),
    ),
    Bug(
        "first norm missing",
        ("",),
        MODULE,
        "        image = self.stem_norm(image)\n",
        "",
        in_layer=False,
        reference_lines=("self.layernorm(embeddings)", "super().forward(features)"),
    ),
    Bug(
        "greatest instead of mean",
        ("",),
        MODULE,
        "image.flatten(2).mean(2)",
        "image.flatten(2).amax(2)",
        in_layer=False,
    ),
    Bug(
        "last norm before the pooling",
        ("",),
        MODULE,
        "pooled = nn.functional.layer_norm(pooled, pooled.shape[1:], self.weight, self.bias, 1e-12)",
        "pass",
        in_layer=False,
        reference_lines=("self.layernorm(last_hidden_state",),
    ),
    Bug("kernels mirrored", ("depth", ""), change=mirror_kernel),
    Bug("strength not loaded", ("",), change=forget_strength),
)

PORT = Port(
    "channels-first",
    "handwritten",
    ("handwritten",),
    build,
    BUGS,
    "trunk.1",
    {
        "stem": "convnext.embeddings.patch_embeddings",
        "stem_norm": "convnext.embeddings.layernorm",
        "trunk.0": "convnext.encoder.stages.0.layers.0",
        "trunk.1": "convnext.encoder.stages.0.layers.1",
        "trunk.3": "convnext.encoder.stages.1.layers.0",
        "trunk.4": "convnext.encoder.stages.1.layers.1",
        "answer": "classifier",
    },
)
