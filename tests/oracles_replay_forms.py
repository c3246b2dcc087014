"""Slow second readers of every file form, by the layout alone: no checks, none of the product's code.

``decode(name, path, lengths)`` returns the samples of a fixture as (tokens, rows [rows, 8, 4]); rows of
padding are cut off. A file that it cannot decode raises whatever it raises.
"""

from __future__ import annotations

import base64
import io
import json

import numpy as np

LAYERS, TOP_K = 8, 4


def routes(value, dtype=None):
    """Decode one routes value to [rows, 8, 4]."""
    if isinstance(value, str) and value.startswith("nrlre1:"):
        _, dtype, _, text = value.split(":")
        value = np.frombuffer(base64.b64decode(text), dtype)
    elif isinstance(value, str) and value.startswith("k05VTVBZ"):
        value = np.load(io.BytesIO(base64.b64decode(value)))
    elif isinstance(value, str):
        value = np.frombuffer(base64.b64decode(value), dtype)
    elif isinstance(value, dict):
        value = np.frombuffer(base64.b64decode(value["data"]), value.get("dtype") or "uint8")
    return np.asarray(value).astype(np.int64).reshape(-1, LAYERS, TOP_K)


def joined(*parts):
    """Rows one after the other."""
    return np.concatenate([routes(*part) for part in parts])


def sglang(r):
    """Totals and one string."""
    meta = r["meta_info"]
    rows = routes(meta["routed_experts"], meta.get("routed_experts_dtype") or "int32")
    return meta["prompt_tokens"] + meta["completion_tokens"], rows


def choices(r):
    """A prompt and its choices."""
    for choice in r["choices"]:
        own = choice["routed_experts"]
        if "usage" in r:
            yield r["usage"]["prompt_tokens"] + r["usage"]["completion_tokens"], routes(own)
        else:
            tokens = len(r["prompt_token_ids"]) + len(choice["token_ids"])
            yield tokens, joined((r["prompt_routed_experts"],), (own,))


def turns(r):
    """Two parts, the second an SGLang response."""
    first, second = r["parts"]
    return r["length"], joined((first["routed_experts"],), (second["meta_info"]["routed_experts"], "int32"))


def messages(r):
    """Messages with their own rows."""
    log = r["message_log"]
    return sum(len(m["token_ids"]) for m in log), joined(*((m["routed_experts"],) for m in log))


def pair(first, second, field):
    """Two token lists and a routes field."""
    return lambda r: (len(r[first]) + len(r[second]), routes(r[field]))


def cut(r):
    """A length and padded rows."""
    return r["input_lengths"], routes(r["routed_experts"])[: r["input_lengths"]]


RECORDS = {
    "sglang": sglang,
    "sglang-uint8": sglang,
    "areal": pair("input_tokens", "output_tokens", "routed_experts"),
    "prime-rl": pair("prompt_ids", "completion_ids", "routed_experts"),
    "nemo-rl": cut,
    "messages": messages,
    "turns": turns,
    "record": lambda r: (r["length"], routes(r["routed_experts"])),
}


def skyrl(path):
    """Columns instead of records."""
    c = json.loads(path.read_text())
    columns = zip(c["prompt_token_ids"], c["response_ids"], c["rollout_expert_indices"], strict=True)
    return [(len(a) + len(b), routes(value)) for a, b, value in columns]


def batches(name, path, lengths):
    """Arrays in files."""
    if name == "padded-right":
        ids = np.load(path)
        return [(n, routes(rows[:n])) for n, rows in zip(lengths, ids, strict=True)]
    file = np.load(path)  # members are read when asked for: others may be damaged
    if name == "verl-padded":
        masks = file["attention_mask"].astype(bool)
        return [(int(m.sum()), routes(ids[m])) for m, ids in zip(masks, file["routed_experts"], strict=True)]
    if name == "megatron":
        ids = np.stack([file[f"layer_{k}"] for k in range(LAYERS)], axis=1)
    else:
        ids = file["routed_experts"]
    bounds = file["offsets"] if "offsets" in file else file["cu_seqlens"]
    sizes = file["lengths"] if "lengths" in file else np.diff(bounds)
    parts = [ids[bounds[i] : bounds[i + 1]] for i in range(len(sizes))]
    return [(int(n), routes(part)) for n, part in zip(sizes, parts, strict=True)]


def decode(name, path, lengths):
    """Return the samples of a file of form `name`."""
    if name == "skyrl":
        return skyrl(path)
    if name == "vllm-pair":
        return [sample for r in json.loads(path.read_text()) for sample in choices(r)]
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else []
    records = [json.loads(line) for line in lines if line.strip()]
    if name == "vllm-npy":
        return [sample for r in records for sample in choices(r)]
    if name in RECORDS:
        return [RECORDS[name](r) for r in records]
    return batches(name, path, lengths)
