"""Models of torchvision and diffusers: traced, held to a trace, and a bug in them named."""

import pytest
import torch
from torch import nn

from pytest_tfdebug import compare, overflow_guard, trace

IMAGE = torch.linspace(-1, 1, 3 * 64 * 64).view(1, 3, 64, 64)


def resnet():
    models = pytest.importorskip("torchvision.models", reason="torchvision is not installed: make test-libraries")
    return models.resnet18(), (IMAGE,)


def unet():
    diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed: make test-libraries")
    model = diffusers.UNet2DConditionModel(
        sample_size=8,
        block_out_channels=(8, 16),
        layers_per_block=1,
        norm_num_groups=4,
        cross_attention_dim=8,
        attention_head_dim=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    )
    return model, (IMAGE[:, :, ::8, ::8].repeat(1, 2, 1, 1)[:, :4], torch.tensor(3), torch.ones(1, 3, 8))


def vae():
    diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed: make test-libraries")
    model = diffusers.AutoencoderKL(
        block_out_channels=(8, 8),
        norm_num_groups=4,
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=2,
    )
    return model, (IMAGE[:, :, ::8, ::8],)


#: Where each gets a bug.
MODELS = {
    "resnet": (resnet, "layer2.1.relu"),
    "unet": (unet, "down_blocks.0.resnets.0.nonlinearity"),
    "vae": (vae, "decoder.up_blocks.0.resnets.0.nonlinearity"),
}


def made(make):
    torch.manual_seed(0)
    model, inputs = make()
    return model.eval(), inputs


@pytest.mark.as_run("architectures")
@pytest.mark.parametrize(("make", "place"), MODELS.values(), ids=MODELS)
def test_bug_in_a_model_of_another_library_is_named(make, place):
    (model, inputs), (wrong, _) = made(make), made(make)
    wrong.set_submodule(place, nn.Softplus())

    expected = trace(model, *inputs)
    report = compare(expected, trace(wrong, *inputs))

    assert compare(expected, trace(made(make)[0], *inputs)).ok
    assert report.culprit.path == place
    with overflow_guard(model) as guard, torch.no_grad():
        model(*inputs)
    assert guard.forwards == 1


@pytest.mark.as_run(
    "architectures",
    limits="Of an autoencoder's `encode`, only the inside is compared. Check `decode` too.",
)
def test_what_an_autoencoder_returns_from_encode_is_said_not_to_be_compared():
    (model, inputs), latent = made(vae), torch.linspace(-1, 1, 32).view(1, 2, 4, 4)

    encoded = compare(*(trace(model, *inputs, method="encode") for _ in range(2)))
    decoded = compare(*(trace(model, latent, method="decode") for _ in range(2)))

    assert (encoded.ok, encoded.coverage.root, decoded.ok, decoded.coverage.root) == (True, False, True, True)
    assert encoded.notes[0].startswith(
        "What AutoencoderKL returns as 'latent_dist' was not compared, for no tensor can be found in it: <diffusers."
    )
