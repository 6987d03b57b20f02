"""What goes on in time: series, videos and trajectories."""

from __future__ import annotations

import logging
import re
import sys
from types import SimpleNamespace

import torch
from cases import Case, shaken
from conversion import carried, experienced, fused
from stubs import bare


def decision_transformer(load):
    from transformers import DecisionTransformerConfig, DecisionTransformerModel

    sizes = {"state_dim": 5, "act_dim": 3, "hidden_size": 32, "max_ep_len": 16, "n_layer": 2, "n_head": 4}
    config = DecisionTransformerConfig(**sizes, activation_function="relu", layer_norm_epsilon=0.003, n_positions=32)
    reference = shaken(DecisionTransformerModel(config))
    with torch.no_grad():
        reference.encoder.wpe.weight.zero_()  # every token is given the first of them; the port has none
    package = load("d3rlpy.models.torch.transformers")
    port = package.ContinuousDecisionTransformer(
        torch.nn.Linear(5, 32),
        embed_size=32,
        position_encoding=package.SimplePositionEncoding(32, 16),
        action_size=3,
        num_heads=4,
        context_size=4,
        num_layers=2,
        attn_dropout=0.0,
        resid_dropout=0.0,
        embed_dropout=0.0,
        activation=torch.nn.ReLU(),
    )
    names = [
        (r"^embed_timestep", "_position_encoding._embed"),
        (r"^embed_return", "_rtg_embed"),
        (r"^embed_state", "_encoder"),
        (r"^embed_action", "_action_embed"),
        (r"^embed_ln", "_embed_ln"),
        (r"^predict_action\.0", "_output"),
        (r"^encoder\.h", "_gpt2._transformer"),
        (r"^encoder\.ln_f", "_gpt2._layer_norm"),
        (r"ln_(\d)", r"_layer_norm\1"),
        (r"attn\.c_proj", "_attention._proj"),
        (r"attn\.([qkv])\.", r"_attention._\1."),
        (r"mlp\.c_fc", "_mlp._l1"),
        (r"mlp\.c_proj", "_mlp._l2"),
    ]

    def cut(weights):
        turned = {name: w.T if re.search(r"c_\w+\.weight", name) else w for name, w in weights.items()}
        for name in [name for name in turned if "c_attn" in name]:
            for kind, part in zip("qkv", turned.pop(name).chunk(3), strict=True):
                turned[name.replace("c_attn", kind)] = part
        return turned

    port = carried(port, reference, names, cut)
    generator = torch.Generator().manual_seed(1)
    states, actions, gains = (torch.randn(2, 4, size, generator=generator) for size in (5, 3, 1))
    times = torch.arange(3, 7).expand(2, 4)
    inputs = {"states": states, "actions": actions, "returns_to_go": gains, "timesteps": times}
    inputs["attention_mask"] = torch.ones(2, 4)
    return Case(
        reference,
        port,
        (),
        inputs,
        (states, actions, gains, times, torch.zeros(2, 4)),
        main=lambda out: out.action_preds,
    )


def patchtst(load):
    from transformers import PatchTSTConfig, PatchTSTForPrediction

    config = PatchTSTConfig(
        num_input_channels=3,
        context_length=24,
        prediction_length=6,
        patch_length=6,
        patch_stride=3,
        num_hidden_layers=2,
        d_model=16,
        num_attention_heads=4,
        ffn_dim=32,
        norm_type="batchnorm",
        pre_norm=False,
        use_cls_token=False,
        pooling_type=None,
        scaling="std",
        loss="mse",
        do_mask_input=False,
        positional_encoding_type="random",
    )
    reference = shaken(PatchTSTForPrediction(config))
    generator = torch.Generator().manual_seed(1)
    for name, buffer in reference.named_buffers():
        if "running" in name:
            buffer.add_(torch.rand(buffer.shape, generator=generator))
    port = load("neuralforecast.models.patchtst").PatchTST_backbone(
        c_in=3,
        c_out=1,
        input_size=24,
        h=6,
        patch_len=6,
        stride=3,
        n_layers=2,
        hidden_size=16,
        n_heads=4,
        linear_hidden_size=32,
        res_attention=False,
        affine=False,
    )
    names = [
        (r"^model\.encoder\.embedder\.input_embedding", "backbone.W_P"),
        (r"^model\.encoder\.positional_encoder\.position_enc", "backbone.W_pos"),
        (r"^model\.encoder\.layers", "backbone.encoder.layers"),
        (r"self_attn\.([qkv])_proj", lambda m: f"self_attn.W_{m[1].upper()}"),
        (r"self_attn\.out_proj", "self_attn.to_out.0"),
        (r"norm_sublayer1\.batchnorm", "norm_attn.1"),
        (r"norm_sublayer3\.batchnorm", "norm_ffn.1"),
        (r"^head\.projection", "head.linear"),
    ]

    def cut(weights):
        whole = weights["head.projection.weight"].view(6, 7, 16)
        return {
            **weights,
            "head.projection.weight": whole.transpose(1, 2).reshape(6, 7 * 16),
        }  # the port's has it turned

    port = carried(port, reference, names, cut, kept=("sdp_attn.scale",))
    series = torch.randn(2, 24, 3, generator=generator).cumsum(1)
    turned = lambda out: out.transpose(1, 2)  # noqa: E731
    return Case(reference, port, (), {"past_values": series}, (series.transpose(1, 2),), arranged=turned)


def timesfm(load):
    from transformers import TimesFmConfig, TimesFmModelForPrediction

    sizes = {"hidden_size": 32, "intermediate_size": 48, "head_dim": 8, "rms_norm_eps": 1e-6}
    quantiles = [0.1, 0.5, 0.9]
    config = TimesFmConfig(
        patch_length=8,
        context_length=48,
        horizon_length=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        quantiles=quantiles,
        use_positional_embedding=True,
        **sizes,
    )
    reference = shaken(TimesFmModelForPrediction(config))
    package = load("timesfm.pytorch_patched_decoder")
    settings = package.TimesFMConfig(
        patch_len=8, horizon_len=16, num_layers=2, num_heads=4, num_kv_heads=4, quantiles=quantiles, **sizes
    )
    names = [
        (r"^decoder\.layers", "stacked_transformer.layers"),
        (r"^decoder\.", ""),
        (r"input_layer\.", "hidden_layer.0."),
    ]
    cut = lambda weights: fused(weights, [f"self_attn.{kind}_proj" for kind in "qkv"], "self_attn.qkv_proj")  # noqa: E731
    port = carried(package.PatchedTimeSeriesDecoder(settings), reference, names, cut)
    series = torch.randn(2, 48, generator=torch.Generator().manual_seed(1)).cumsum(1)
    padded = torch.zeros(2, 48)
    return Case(
        reference,
        port,
        (),
        {"past_values": list(series), "freq": [0, 1], "return_forecast_on_context": False},
        (series, padded, torch.tensor([[0], [1]])),
        arranged=lambda out: out[:, -1],
        main=lambda out: out.full_predictions,
    )


def timesformer(load):
    from transformers import TimesformerConfig, TimesformerModel

    config = TimesformerConfig(
        image_size=32,
        patch_size=8,
        num_frames=3,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        hidden_dropout_prob=0.0,
    )
    reference = shaken(TimesformerModel(config))
    for name in ("localizers.drn", "localizers.drn.drn", "multimodal"):  # the wheel lacks two, transformers 5 one
        sys.modules[f"mmaction.models.{name}"] = SimpleNamespace(DRN=None)
    attention = load("mmaction.models.common.transformer")
    models = load("mmengine.registry").MODELS
    for kind in ("DividedTemporalAttentionWithNorm", "DividedSpatialAttentionWithNorm", "FFNWithNorm"):
        models.register_module(kind, force=True, module=getattr(attention, kind))
    package = load("mmaction.models.backbones.timesformer")
    port = package.TimeSformer(3, 32, 8, embed_dims=32, num_heads=4, num_transformer_layers=2)
    names = [
        (r"^embeddings\.cls_token", "cls_token"),
        (r"^embeddings\.position_embeddings", "pos_embed"),
        (r"^embeddings\.time_embeddings", "time_embed"),
        (r"^embeddings\.patch_embeddings", "patch_embed"),
        (r"^encoder\.layer\.", "transformer_layers.layers."),
        (r"layernorm_before", "attentions.1.norm"),
        (r"layernorm_after", "ffns.0.norm"),
        (r"temporal_layernorm", "attentions.0.norm"),
        (r"temporal_dense", "attentions.0.temporal_fc"),
        (r"temporal_attention\.attention\.qkv\.", "attentions.0.attn.in_proj_"),
        (r"temporal_attention\.output\.dense", "attentions.0.attn.out_proj"),
        (r"attention\.attention\.qkv\.", "attentions.1.attn.in_proj_"),
        (r"attention\.output\.dense", "attentions.1.attn.out_proj"),
        (r"intermediate\.dense", "ffns.0.layers.0.0"),
        (r"output\.dense", "ffns.0.layers.1"),
        (r"^layernorm", "norm"),
    ]
    frames = torch.randn(2, 3, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    return Case(
        reference,
        carried(port, reference, names),
        (),
        {"pixel_values": frames},
        (frames.transpose(1, 2),),
        main=lambda out: out.last_hidden_state[:, 0],
    )


def patchtst_encoder(load):
    from transformers import PatchTSTConfig, PatchTSTModel

    config = PatchTSTConfig(
        num_input_channels=16,  # the port takes as many channels as features
        context_length=24,
        patch_length=6,
        patch_stride=3,
        num_hidden_layers=2,
        d_model=16,
        num_attention_heads=4,
        ffn_dim=32,
        norm_type="layernorm",
        norm_eps=1e-6,
        activation_function="relu",
        pre_norm=False,
        use_cls_token=False,
        scaling=None,
        do_mask_input=False,
        positional_encoding_type="random",
    )
    reference = shaken(PatchTSTModel(config))
    with torch.no_grad():  # the port has none
        for name, parameter in reference.named_parameters():
            if "input_embedding.bias" in name or ("self_attn" in name and name.endswith("bias")):
                parameter.zero_()
    sys.modules["pypots.utils.logging"] = SimpleNamespace(logger=logging.getLogger("pypots"), logger_creator=None)
    port = torch.nn.Sequential(
        load("pypots.nn.modules.patchtst").PatchEmbedding(16, 6, 3, 0, 0.0),
        load("pypots.nn.modules.patchtst").PatchtstEncoder(2, 16, 4, 4, 4, 32, 0.0, 0.0),
    )
    names = [
        (r"^encoder\.embedder\.input_embedding", "0.value_embedding"),
        (r"^encoder\.positional_encoder\.position_enc", "0.positional_embedding.pos_table"),
        (r"^encoder\.layers", "1.encoder.enc_layer_stack"),
        (r"self_attn\.([qkv])_proj", r"slf_attn.w_\1s"),
        (r"self_attn\.out_proj", "slf_attn.fc"),
        (r"norm_sublayer1", "layer_norm"),
        (r"norm_sublayer3", "pos_ffn.layer_norm"),
        (r"ff\.0", "pos_ffn.linear_1"),
        (r"ff\.3", "pos_ffn.linear_2"),
    ]

    def cut(weights):  # the port's table is longer
        at = "encoder.positional_encoder.position_enc"
        return {**weights, at: torch.nn.functional.pad(weights[at], (0, 0, 0, 1000 - len(weights[at])))[None]}

    series = torch.randn(2, 24, 16, generator=torch.Generator().manual_seed(1)).cumsum(1)
    port = carried(port, reference, names, cut)
    turned = lambda out: out[0].transpose(2, 3)  # noqa: E731
    return Case(reference, port, (), {"past_values": series}, (series.transpose(1, 2),), arranged=turned)


def patchtst_basicts(load):
    from transformers import PatchTSTConfig, PatchTSTForPrediction

    config = PatchTSTConfig(
        num_input_channels=3,
        context_length=24,
        prediction_length=6,
        patch_length=6,
        patch_stride=3,
        num_hidden_layers=2,
        d_model=16,
        num_attention_heads=4,
        ffn_dim=32,
        norm_type="batchnorm",
        pre_norm=False,
        use_cls_token=False,
        pooling_type=None,
        scaling="std",
        loss="mse",
        do_mask_input=False,
    )
    reference = experienced(shaken(PatchTSTForPrediction(config)))
    bare("basicts")
    sys.modules["basicts.configs"] = SimpleNamespace(BasicTSModelConfig=object)
    package = load("basicts.models.PatchTST")
    settings = package.PatchTSTConfig(
        input_len=24,
        output_len=6,
        num_features=3,
        patch_len=6,
        patch_stride=3,
        padding=False,
        hidden_size=16,
        n_heads=4,
        intermediate_size=32,
        num_layers=2,
        norm_type="batch_norm",
        affine=False,
    )
    port = package.PatchTSTForForecasting(settings)
    port.revin.eps = 1e-5
    names = [
        (r"^model\.encoder\.embedder\.input_embedding", "backbone.patch_embedding.value_embedding"),
        (r"^model\.encoder\.positional_encoder\.position_enc", "backbone.patch_embedding.position_embedding.pe"),
        (r"^model\.encoder", "backbone.encoder"),
        (r"norm_sublayer1\.batchnorm", "post_attn_norm.batch_norm"),
        (r"norm_sublayer3\.batchnorm", "post_ffn_norm.batch_norm"),
        (r"ff\.0", "ffn_layer.fc1"),
        (r"ff\.3", "ffn_layer.fc2"),
        (r"^head\.projection", "forecasting_head.linear"),
    ]

    def cut(weights):  # the port's table is longer
        at = "model.encoder.positional_encoder.position_enc"
        return {**weights, at: torch.nn.functional.pad(weights[at], (0, 0, 0, 5000 - len(weights[at])))[None]}

    series = torch.randn(2, 24, 3, generator=torch.Generator().manual_seed(1)).cumsum(1)
    return Case(reference, carried(port, reference, names, cut), (), {"past_values": series}, (series,))
