"""The fields that matter, beside a person's list of them for architectures of every kind."""

import pytest
import transformers

import pytest_tfdebug

SIZES = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
DECODER = "hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads tie_word_embeddings"
ROPE = "rope_theta rope_type"
MIXED = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4096}
#: Class, what its configuration needs, and the fields that its forward reads, by reading it.
WHAT_MATTERS = {
    "llama": ("LlamaForCausalLM", {}, f"{DECODER} {ROPE} hidden_act rms_norm_eps attention_bias mlp_bias head_dim"),
    "phi3": (
        "Phi3ForCausalLM",
        {"original_max_position_embeddings": 64},
        f"{DECODER} {ROPE} hidden_act rms_norm_eps partial_rotary_factor sliding_window original_max_position_embeddings",
    ),
    "qwen2": (
        "Qwen2ForCausalLM",
        {},
        f"{DECODER} {ROPE} hidden_act rms_norm_eps use_sliding_window sliding_window max_window_layers layer_types",
    ),
    "gemma2": (
        "Gemma2ForCausalLM",
        {"head_dim": 8, **MIXED},
        f"{DECODER} {ROPE} hidden_activation rms_norm_eps head_dim attention_bias query_pre_attn_scalar attn_logit_softcapping final_logit_softcapping sliding_window layer_types",
    ),
    "gemma3_text": (
        "Gemma3ForCausalLM",
        {"head_dim": 8, **MIXED},
        f"{DECODER} hidden_activation rms_norm_eps head_dim attention_bias query_pre_attn_scalar final_logit_softcapping sliding_window layer_types use_bidirectional_attention sliding_attention.rope_theta full_attention.rope_theta sliding_attention.rope_type full_attention.rope_type",
    ),
    "granite": (
        "GraniteForCausalLM",
        {},
        f"{DECODER} {ROPE} hidden_act rms_norm_eps attention_bias mlp_bias embedding_multiplier logits_scaling residual_multiplier attention_multiplier",
    ),
    "mixtral": (
        "MixtralForCausalLM",
        {"num_local_experts": 4},
        f"{DECODER} {ROPE} hidden_act rms_norm_eps num_local_experts num_experts_per_tok sliding_window",
    ),
    "deepseek_v3": (
        "DeepseekV3ForCausalLM",
        {
            "num_key_value_heads": 4,
            "n_routed_experts": 8,
            "n_group": 4,
            "topk_group": 2,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 16,
            "kv_lora_rank": 8,
            "q_lora_rank": 8,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 8,
            "v_head_dim": 8,
            "first_k_dense_replace": 1,
        },
        f"{ROPE} hidden_size intermediate_size moe_intermediate_size num_hidden_layers num_attention_heads tie_word_embeddings hidden_act rms_norm_eps attention_bias n_routed_experts n_shared_experts num_experts_per_tok n_group topk_group norm_topk_prob routed_scaling_factor first_k_dense_replace q_lora_rank kv_lora_rank qk_rope_head_dim qk_nope_head_dim v_head_dim rope_interleave",
    ),
    "gpt_neox": (
        "GPTNeoXForCausalLM",
        {"hidden_size": 64},
        f"{ROPE} hidden_size intermediate_size num_hidden_layers num_attention_heads tie_word_embeddings hidden_act layer_norm_eps attention_bias use_parallel_residual partial_rotary_factor",
    ),
    "helium": (  # which takes no hidden size but its heads times the width of one
        "HeliumForCausalLM",
        {"num_key_value_heads": 4, "head_dim": 8},
        f"{DECODER} {ROPE} hidden_act rms_norm_eps attention_bias mlp_bias head_dim",
    ),
    "falcon": (
        "FalconForCausalLM",
        {},
        f"{ROPE} hidden_size ffn_hidden_size num_hidden_layers num_attention_heads tie_word_embeddings activation layer_norm_epsilon bias alibi parallel_attn multi_query new_decoder_architecture",
    ),
    "t5": (
        "T5ForConditionalGeneration",
        {"d_model": 32, "d_ff": 48, "d_kv": 8, "num_layers": 2, "num_heads": 4},
        "d_model d_ff d_kv num_layers num_decoder_layers num_heads relative_attention_num_buckets relative_attention_max_distance layer_norm_epsilon",
    ),
    "bert": (
        "BertModel",
        {},
        "hidden_size intermediate_size num_hidden_layers num_attention_heads hidden_act layer_norm_eps",
    ),
}


@pytest.mark.parametrize("kind", WHAT_MATTERS)
def test_each_field_that_a_person_finds_in_the_forward_matters(kind):
    name, own, listed = WHAT_MATTERS[kind]
    config_class = transformers.CONFIG_MAPPING[kind]
    known = config_class().to_dict().keys()
    config = config_class(**{key: value for key, value in {**SIZES, **own}.items() if key in known})

    report = pytest_tfdebug.sweep(getattr(transformers, name), config)

    assert report.ok
    assert set(listed.split()) - {row.field for row in report.rows if row.verdict == "matters"} == set()
