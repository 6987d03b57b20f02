"""Names that were removed from transformers, and what replaced them. Upgrading does not bring them back.

Source:
    https://github.com/huggingface/transformers/blob/main/MIGRATION_GUIDE_V5.md and the deprecation notes of the
    releases 4.30 to 4.57.
"""

from __future__ import annotations

#: Models that were deprecated in 4.x and whose classes are gone.
_MODELS = (
    "Deta|EfficientFormer|ErnieM|GPTSanJapanese|Graphormer|Jukebox|MCTCT|MMBT|Mega|Nat|Nezha|OpenLlama|QDQBert|Realm|RetriBert"
    "|Speech2Text2|Tapex|TrajectoryTransformer|TransfoXL|Tvlt|Van|ViTHybrid|XLMProphetNet"
)
#: Pattern of a name -> the replacement, as a phrase after "use"; ``{0}`` is the pattern's group.
REMOVED_NAMES: dict[str, str] = {
    r"AdamW": "torch.optim.AdamW",
    r"AutoModelWithLMHead": "AutoModelForCausalLM, AutoModelForMaskedLM or AutoModelForSeq2SeqLM",
    r"AutoModelForVision2Seq": "AutoModelForImageTextToText",
    r"(?:TF|Flax)(\w*(?:Model|For)\w*)": "{0}, the PyTorch class (TensorFlow and Flax are gone in 5.x)",
    r"(?:TF|Flax)\w+": "the PyTorch class of the same task (TensorFlow and Flax are gone in 5.x)",
    r"(?:TF|FLAX)_(\w+_MAPPING)": "{0}",
    r"MODEL_FOR_VISION_2_SEQ_MAPPING": "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING",
    r"MODEL_WITH_LM_HEAD_MAPPING": "MODEL_FOR_CAUSAL_LM_MAPPING",
    r"is_(?:tf|flax|keras_nlp|tensorflow_text)_available": "nothing: PyTorch is the only framework",
    r"AdamWeightDecay|GradientAccumulator|KerasMetricCallback|PushToHubCallback|WarmUp|create_optimizer|shape_list": (
        "torch.optim and Trainer (TensorFlow and Flax are gone in 5.x)"
    ),
    r"(?:load|convert)_\w*tf\w*_to_\w+|load_(?:pytorch|tf2)_\w+|modeling_tf_\w+|training_args_tf": (
        "nothing: PyTorch is the only framework"
    ),
    r"load_tf_weights_in_\w+": "a checkpoint converted to safetensors with transformers 4",
    r"(\w+)FeatureExtractor": "{0}ImageProcessor",
    r"(\w+)ImageProcessor": "{0}VideoProcessor",
    r"(\w+)TokenizerFast": "{0}Tokenizer",
    r"MT5Tokenizer": "T5Tokenizer",
    r"MistralCommonTokenizer": "MistralCommonBackend",
    r"Wav2Vec2Tokenizer": "Wav2Vec2CTCTokenizer",
    rf"(?:{_MODELS})[A-Z]\w*": "transformers 4, the last with this model",
    r"\w+OnnxConfig|convert_graph_to_onnx|onnx": "the optimum package",
    r"(?:Glue|Squad|LineByLine|TextDataset|InputExample|InputFeatures)\w*": "the datasets package",
    r"(?:SingleSentenceClassification|Data)Processor": "the datasets package",
    r"(?:glue|squad|xnli)_\w+": "the datasets and evaluate packages",
    r"DataCollatorForWholeWordMask": "DataCollatorForLanguageModeling(whole_word_mask=True)",
    r"DataCollatorForSOP": "DataCollatorForLanguageModeling",
    r"\w+(?:FlashAttention2|SdpaAttention)": "the model's one attention class (attn_implementation chooses the kernel)",
    r"(?:Hybrid|HybridChunked|SlidingWindow|Sink|OffloadedStatic)Cache": "DynamicCache or StaticCache",
    r"(?:Falcon)?MambaCache": "DynamicCache",
    r"(?:SlidingWindow|ChunkedSliding)Layer": "StaticSlidingWindowLayer",
    r"OffloadedCache": "DynamicCache(offloading=True)",
    r"HQQQuantizedCache|QuantoQuantizedCache": "QuantizedCache",
    r"(?:Constrained)?BeamSearchScorer|BeamScorer": "model.generate(num_beams=...)",
    r"(?:Disjunctive|Phrasal)?Constraint|ConstraintListState": (
        'model.generate(custom_generate="transformers-community/constrained-beam-search")'
    ),
    r"HammingDiversityLogitsProcessor": 'model.generate(custom_generate="transformers-community/group-beam-search")',
    r"(?:ImageToText|VisualQuestionAnswering)Pipeline": "pipeline('image-text-to-text')",
    r"QuestionAnsweringPipeline": "AutoModelForQuestionAnswering",
    r"ImageToImagePipeline": "AutoModelForImageToImage",
    r"(?:Summarization|Translation|Text2TextGeneration|Conversational)Pipeline": "pipeline('text-generation')",
    r"top_k_top_p_filtering": "TopKLogitsWarper and TopPLogitsWarper",
    r"SpecialTokensMixin": "PreTrainedTokenizerBase",
    r"LossKwargs": "TransformersKwargs",
    r"(?:PYTORCH_)?TRANSFORMERS_CACHE|PYTORCH_PRETRAINED_BERT_CACHE": "huggingface_hub.constants.HF_HUB_CACHE",
    r"infer_device": "torch.accelerator.current_accelerator()",
    r"is_safetensors_available|is_sigopt_available|prune_layer|prune_linear_layer": "nothing: what it was for is gone",
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
