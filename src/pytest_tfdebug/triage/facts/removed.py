"""Names that transformers had once: what replaced them. Data; for a name gone, upgrading does not help.

Source:
    https://github.com/huggingface/transformers/blob/main/MIGRATION_GUIDE_V5.md and the deprecation notes of the
    releases 4.30 to 4.57.
"""

from __future__ import annotations

#: Pattern of a name -> the replacement, as a phrase after "use"; ``{0}`` is the pattern's group.
REMOVED_NAMES: dict[str, str] = {
    r"AdamW": "torch.optim.AdamW",
    r"AutoModelWithLMHead": "AutoModelForCausalLM, AutoModelForMaskedLM or AutoModelForSeq2SeqLM",
    r"AutoModelForVision2Seq": "AutoModelForImageTextToText",
    r"(?:TF|Flax)(\w*(?:Model|For)\w*)": "{0}, the PyTorch class (TensorFlow and Flax are gone in 5.x)",
    r"(?:TF|Flax)\w+": "the PyTorch class of the same task (TensorFlow and Flax are gone in 5.x)",
    r"is_(?:tf|flax)_available": "nothing: PyTorch is the only framework",
    r"load_tf_weights_in_\w+": "a checkpoint converted to safetensors with transformers 4",
    r"(\w+)FeatureExtractor": "{0}ImageProcessor",
    r"\w+(?:FlashAttention2|SdpaAttention)": "the model's one attention class, with attn_implementation=...",
    r"HybridCache|SlidingWindowCache|SinkCache|OffloadedStaticCache": "StaticCache or DynamicCache",
    r"OffloadedCache": "DynamicCache(offloading=True)",
    r"HQQQuantizedCache|QuantoQuantizedCache": "QuantizedCache",
    r"(?:Constrained)?BeamSearchScorer|BeamScorer": "model.generate(num_beams=...)",
    r"(?:Summarization|Translation|Text2TextGeneration|Conversational)Pipeline": "pipeline('text-generation')",
    r"top_k_top_p_filtering": "TopKLogitsWarper and TopPLogitsWarper",
    r"SpecialTokensMixin": "PreTrainedTokenizerBase",
    r"LossKwargs": "TransformersKwargs",
    r"TRANSFORMERS_CACHE": "huggingface_hub.constants.HF_HUB_CACHE",
    r"HfAgent|ReactCodeAgent|CodeAgent": "the smolagents package",
}

#: Module that is gone -> where its contents are.
REMOVED_MODULES: dict[str, str] = {
    "transformers.generation_utils": "transformers.generation",
    "transformers.deepspeed": "transformers.integrations",
    "transformers.onnx": "the optimum package",
    "transformers.utils.fx": "torch.export",
    "transformers.agents": "the smolagents package",
    "transformers.modeling_bert": "transformers.models.bert.modeling_bert",
    "transformers.tokenization_bert": "transformers",
}

#: Argument that is gone -> (the callables that had it, what to write).
REMOVED_ARGUMENTS: dict[str, tuple[str, str]] = {
    "evaluation_strategy": ("TrainingArguments", "eval_strategy="),
    "no_cuda": ("TrainingArguments", "use_cpu="),
    "push_to_hub_token": ("TrainingArguments", "hub_token="),
    "warmup_ratio": ("TrainingArguments", "warmup_steps="),
    "group_by_length": ("TrainingArguments", 'train_sampling_strategy="group_by_length"'),
    "include_inputs_for_metrics": ("TrainingArguments", 'include_for_metrics=["inputs"]'),
    "overwrite_output_dir": ("TrainingArguments", ""),
    "logging_dir": ("TrainingArguments", ""),
    "save_safetensors": ("TrainingArguments", ""),
    "tokenizer": ("Trainer", "processing_class="),
    "load_in_8bit": ("from_pretrained", "quantization_config=BitsAndBytesConfig(load_in_8bit=True)"),
    "load_in_4bit": ("from_pretrained", "quantization_config=BitsAndBytesConfig(load_in_4bit=True)"),
    "use_auth_token": ("from_pretrained", "token="),
    "use_flash_attention_2": ("from_pretrained", 'attn_implementation="flash_attention_2"'),
    "from_tf": ("from_pretrained", ""),
    "from_flax": ("from_pretrained", ""),
}
