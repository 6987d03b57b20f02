"""What looks at pictures, films and maps of depth."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from unittest.mock import patch

import torch
from cases import Case, shaken, to_edit
from conversion import experienced, named, picture
from stubs import bare


class _Found(torch.nn.Module):
    """Points of one picture, and what describes them, laid out as the reference does."""

    def __init__(self, finder):
        super().__init__()
        self.finder = finder

    def forward(self, pixels):
        found = self.finder({"image": pixels[:, :1]})
        points, scores, described = (found[kind][0] for kind in ("keypoints", "scores", "descriptors"))
        return {"keypoints": points[None] / pixels.shape[-1], "scores": scores[None], "descriptors": described.T[None]}


def superpoint(load):
    from transformers import SuperPointConfig, SuperPointForKeypointDetection

    config = SuperPointConfig(max_keypoints=24, border_removal_distance=0, nms_radius=2)
    reference = shaken(SuperPointForKeypointDetection(config))
    names = [
        (r"^encoder\.conv_blocks\.(\d)\.conv_([ab])", lambda m: f"conv{int(m[1]) + 1}{m[2]}"),
        (r"^keypoint_decoder\.conv_score_([ab])", r"convP\1"),
        (r"^descriptor_decoder\.conv_descriptor_([ab])", r"convD\1"),
    ]
    bare("superpoint_superglue")
    package = load("superpoint_superglue.superpoint")
    weights = named(reference.state_dict(), names)
    settings = {"max_keypoints": 24, "remove_borders": 0, "nms_radius": 2}
    with patch.object(torch, "load", lambda file: weights), redirect_stdout(StringIO()):  # it reads a file, and prints
        port = package.SuperPoint(settings, "").eval()
    pixels = picture(48, batch=1)
    arranged, main = (lambda out: out["descriptors"]), (lambda out: out.descriptors)
    return Case(reference, _Found(port), (), {"pixel_values": pixels}, (pixels,), arranged=arranged, main=main)


class _Pairs(torch.nn.Module):
    """What matches points that were found before."""

    def __init__(self, matcher):
        super().__init__()
        self.matcher = matcher

    def forward(self, points, described, scores):
        scores = self.matcher._match_image_pair(points, described, scores, 30, 40)[1]
        return {"matching_scores0": scores[:, 0], "matching_scores1": scores[:, 1]}


def superglue(load):
    from transformers import SuperGlueConfig, SuperGlueForKeypointMatching

    kinds = ["self", "cross", "self"]
    sizes = {"keypoint_encoder_sizes": [8, 16], "sinkhorn_iterations": 20}
    config = SuperGlueConfig(hidden_size=32, gnn_layers_types=kinds, attn_implementation="eager", **sizes)
    reference = experienced(shaken(SuperGlueForKeypointMatching(config)))
    reference.final_projection.final_proj.weight.data.mul_(2)  # some points match
    names = [
        (r"^final_projection\.final_proj", "final_proj"),
        (r"^keypoint_encoder\.encoder\.(\d)\.linear", lambda m: f"kenc.encoder.{3 * int(m[1])}"),
        (r"^keypoint_encoder\.encoder\.(\d)\.batch_norm", lambda m: f"kenc.encoder.{3 * int(m[1]) + 1}"),
        (r"^keypoint_encoder\.encoder\.(\d)", lambda m: f"kenc.encoder.{3 * int(m[1])}"),
        (r"mlp\.0\.linear", "mlp.0"),
        (r"mlp\.0\.batch_norm", "mlp.1"),
        (r"mlp\.1\.(weight|bias)$", lambda m: m[0]),
        (r"attention\.self\.(query|key|value)", lambda m: f"attn.proj.{['query', 'key', 'value'].index(m[1])}"),
        (r"attention\.output\.dense", "attn.merge"),
    ]
    order = torch.arange(32).view(4, 8).T.flatten()  # heads are innermost in the port

    def cut(weights):
        cut = {}
        for name, each in weights.items():
            if name.startswith("keypoint_detector"):
                continue
            if ".self." in name:
                each = each[order]  # noqa: PLW2901 - step by step
            elif "attention.output.dense.weight" in name:
                each = each[:, order]  # noqa: PLW2901
            is_flat = each.ndim == 2
            cut[name.replace("mlp.1.", "mlp.3.")] = each[..., None] if is_flat else each
        return cut

    package = load("superpoint_superglue.superglue")
    weights = named(cut(reference.state_dict()), names)
    settings = {"descriptor_dim": 32, "keypoint_encoder": [8, 16], "GNN_layers": kinds, "sinkhorn_iterations": 20}
    with patch.object(torch, "load", lambda file: weights), redirect_stdout(StringIO()):
        port = package.SuperGlue(settings | {"match_threshold": 0.0}, "").eval()
    generator = torch.Generator().manual_seed(1)
    points = torch.rand(2, 2, 9, 2, generator=generator) * 30
    described, scores = torch.randn(2, 2, 9, 32, generator=generator), torch.rand(2, 2, 9, generator=generator)
    pixels = torch.zeros(2, 1, 30, 40)
    told = {f"image{n}": pixels for n in range(2)} | {f"keypoints{n}": points[:, n] for n in range(2)}
    told |= {f"descriptors{n}": described[:, n].transpose(1, 2) for n in range(2)}
    told |= {f"scores{n}": scores[:, n] for n in range(2)}

    def both(out):
        return torch.stack([out["matching_scores0"], out["matching_scores1"]], 1)

    return Case(_Pairs(reference), port, (points, described, scores), {}, (told,), arranged=both, main=both)


PORTS = (
    to_edit("superpoint", "superpoint_superglue", superpoint),
    to_edit("superglue", "superpoint_superglue", superglue),
)
