"""Implementations of other people, each with the reference's weights; see ``utils/first_try.py``.

They were sealed until they had given the figures of a first try; now they may be looked at. ``Port.reloaded`` names the
packages whose forward code is edited at random.
"""

from __future__ import annotations

from cases import to_edit

from tried import decoders, encoders, images, series, sound

#: Their registries take a class once.
_MM = ("mmcv", "mmengine")


PORTS = (
    to_edit("ablang-roberta", "ablang", encoders.roberta),
    to_edit("allennlp-t5", "allennlp", encoders.allennlp_t5, "allennlp.modules", "allennlp.nn"),
    to_edit(
        "audiocraft-encodec",
        "audiocraft",
        sound.encodec,
        "audiocraft.models",
        "audiocraft.modules",
        "audiocraft.quantization",
    ),
    to_edit("bark-fine", "bark", sound.bark_fine),
    to_edit("basicts-patchtst", "basicts", series.patchtst_basicts),
    to_edit("bert4torch-roformer", "bert4torch", encoders.roformer),
    to_edit("bertviz-bert", "bertviz", encoders.bert),
    to_edit("bertviz-gpt2", "bertviz", decoders.gpt2),
    to_edit("chinese-clip", "cn_clip", images.chinese_clip),
    to_edit("clip-vision", "clip", images.clip_vision),
    to_edit("conformer-granite-speech", "conformer", sound.granite_speech),
    to_edit("coqui-vits-text", "TTS", sound.vits_text, "TTS.tts"),
    to_edit("d3rlpy-decision", "d3rlpy", series.decision_transformer, "d3rlpy.models"),
    to_edit("dac", "dac", sound.dac, "dac.model", "dac.nn"),
    to_edit("deberta", "DeBERTa", encoders.deberta),
    to_edit("doctr-vit", "doctr", images.doctr_vit, "doctr.models"),
    to_edit("easydetect-d-fine", "easydetect", images.d_fine, "easydetect.nn"),
    to_edit("efficientnet", "efficientnet_pytorch", images.efficientnet),
    to_edit("eole-mixtral", "eole", decoders.mixtral),
    to_edit("espnet-conformer", "espnet", sound.conformer, "espnet.nets"),
    to_edit("espnet-hifigan", "espnet2", sound.hifigan, "espnet2.gan_tts"),
    to_edit("fms-mpnet", "fms", encoders.mpnet),
    to_edit("fnet", "fnet", encoders.fnet),
    to_edit("funasr-data2vec", "funasr", sound.data2vec, "funasr.models.data2vec", "funasr.models.transformer.utils"),
    to_edit("geffnet-mobilenet", "geffnet", images.mobilenet),
    to_edit("gemma4-codex-text", "gemma4_pt_codex", decoders.gemma4),
    to_edit("gpt-oss", "gpt_oss", decoders.gpt_oss),
    to_edit("groundingdino-encoder", "groundingdino", images.grounding_dino),
    to_edit("hiera", "hiera", images.hiera),
    to_edit("joeynmt-marian", "joeynmt", encoders.marian),
    to_edit("kornia-siglip", "kornia", images.siglip2, "kornia.models"),
    to_edit("laion-clap-audio", "laion_clap", sound.clap_audio),
    to_edit("lavis-blip2-vision", "lavis", images.blip2_vision),
    to_edit("llama-models-llama3", "llama_models", decoders.llama3, "llama_models.llama3"),
    to_edit("llms-from-scratch-qwen3-moe", "llms_from_scratch", decoders.qwen3_moe),
    to_edit("mistral-pixtral-vision", "mistral_inference", images.pixtral_vision),
    to_edit("mmaction-timesformer", "mmaction", series.timesformer, "mmaction", *_MM),
    to_edit("mmdet-conditional-detr", "mmdet", images.conditional_detr, "mmdet", *_MM),
    to_edit("mmpretrain-poolformer", "mmpretrain", images.poolformer, "mmpretrain", *_MM),
    to_edit("mmseg-beit", "mmseg", images.beit_upernet, "mmseg", *_MM),
    to_edit("monai-vit", "monai", images.monai_vit, "monai.networks"),
    to_edit("moshi-mimi", "moshi", sound.mimi, "moshi.models", "moshi.modules", "moshi.quantization"),
    to_edit("nemo-parakeet", "nemo", sound.parakeet, "nemo.collections.asr"),
    to_edit(
        "neuralforecast-patchtst", "neuralforecast", series.patchtst, "neuralforecast.models", "neuralforecast.common"
    ),
    to_edit("niverel-mamba2", "niverel_mamba", decoders.mamba2),
    to_edit("olmo", "olmo", decoders.olmo),
    to_edit("olmo-core-olmo2", "olmo_core", decoders.olmo2, "olmo_core.nn"),
    to_edit("onmt-falcon", "onmt", decoders.falcon, "onmt.decoders", "onmt.modules"),
    to_edit(
        "parlai-blenderbot",
        "parlai",
        encoders.blenderbot,
        "parlai.agents",
        "parlai.core.torch_generator_agent",
        "parlai.utils.torch",
    ),
    to_edit("perceiver-io", "perceiver", encoders.perceiver),
    to_edit("pocket-tts-encoder", "pocket_tts", sound.pocket_tts),
    to_edit("pretrained-vit", "pytorch_pretrained_vit", images.pretrained_vit),
    to_edit("pypots-patchtst", "pypots", series.patchtst_encoder, "pypots.nn"),
    to_edit("pytext-xlm-roberta", "pytext", encoders.xlm_roberta),
    to_edit("pytorchcv-resnet", "pytorchcv", images.resnet),
    to_edit("recurrentgemma", "recurrentgemma", decoders.recurrent_gemma, "recurrentgemma.torch"),
    to_edit("refiners-clip-text", "refiners", encoders.clip_text, "refiners.foundationals", "refiners.fluxion"),
    to_edit("rwkv", "rwkv", decoders.rwkv),
    to_edit("s3prl-wav2vec2", "s3prl", sound.wav2vec2),
    to_edit("sam2-vision", "sam2", images.sam2_vision),
    to_edit("smp-segformer", "segmentation_models_pytorch", images.segformer),
    to_edit("sockeye-pegasus", "sockeye", encoders.pegasus_encoder),
    to_edit("spandrel-swin2sr", "spandrel", images.swin2sr),
    to_edit(
        "speechbrain-hifigan",
        "speechbrain",
        sound.speechbrain_hifigan,
        "speechbrain.lobes.models.HifiGAN",
        "speechbrain.nnet",
    ),
    to_edit("taming-chameleon", "taming", images.chameleon_encoder),
    to_edit("tape-bert", "tape", encoders.protein_bert),
    to_edit("texar-t5", "texar", encoders.texar_t5),
    to_edit("timesfm", "timesfm", series.timesfm),
    to_edit("torchmultimodal-flava", "torchmultimodal", images.flava),
    to_edit("torchscale-kosmos2", "torchscale", decoders.kosmos2_text),
    to_edit("torchtext-t5", "torchtext", encoders.t5),
    to_edit("torchtitan-deepseek-v3", "torchtitan", decoders.deepseek_v3, "torchtitan.models"),
    to_edit("tortoise-univnet", "tortoise", sound.univnet),
    to_edit("transformer-lens-gpt2", "transformer_lens", decoders.hooked_gpt2),
    to_edit("transformers1-xlnet", "pytorch_transformers", encoders.xlnet),
    to_edit("ultralytics-rt-detr", "ultralytics", images.rt_detr, "ultralytics.nn"),
)
