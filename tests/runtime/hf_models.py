"""Tiny random Hugging Face mixture-of-experts models."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers

COMMON = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
MOE = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
GROUPED = {
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "n_group": 2,
    "topk_group": 1,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
}
MLA = {"q_lora_rank": 16, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8}
FAMILIES = {
    "qwen3_moe": {**MOE, "decoder_sparse_step": 1},
    "gpt_oss": {"num_local_experts": 8, "num_experts_per_tok": 2, "num_hidden_layers": 2},
    "deepseek_v3": {**GROUPED, **MLA, "head_dim": 4, "num_key_value_heads": 4},
    "bailing_hybrid": {
        **MOE,
        **MLA,
        "n_group": 2,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "layer_group_size": 3,
        "num_shared_experts": 1,
        "num_key_value_heads": 4,
    },
    "mixtral": {"num_local_experts": 8, "num_experts_per_tok": 2},
    "olmoe": {"num_experts": 8, "num_experts_per_tok": 2},
    "glm4_moe": GROUPED,
}


def build(family, seed=0, **extra):
    """Return a tiny model of a family."""
    config = transformers.AutoConfig.for_model(family, **{**COMMON, **FAMILIES[family], **extra})
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():  # wide enough that another expert is another answer
            if parameter.dim() > 1:
                parameter.mul_(3.0)
    return model
