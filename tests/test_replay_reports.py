"""Public reports of lost, padded or misread routes: each with its input and the right behaviour.

One row per report: the systems' own trackers name them; the input is the smallest that shows the symptom.
"""

import base64
import tracemalloc
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from routepack_opt.errors import InputError
from routepack_opt.model import MoEModel
from routepack_opt.replay import read

MODEL = MoEModel(4, 32, 4)
RNG = np.random.default_rng(11)


def rows(count, layers=4, experts=32, top_k=4, dtype=np.int32):
    """Random routes of distinct experts."""
    return np.argsort(RNG.random((count, layers, experts)), axis=2)[:, :, :top_k].astype(dtype)


IDS = rows(9)  # ten tokens


@dataclass(frozen=True)
class Report:
    """A symptom: what is read, and the error to raise or the rows and counts to give."""

    name: str
    source: Any
    error: str | None = None
    kept: int | None = None
    lost: dict[str, int] = field(default_factory=dict)
    counted: np.ndarray | None = None
    model: MoEModel = MODEL
    options: dict[str, Any] = field(default_factory=lambda: {"lengths": [10]})


def edit(place, value, ids=IDS):
    """A copy with other ids in one place."""
    copy = ids.copy()
    copy[place] = value
    return copy


def sglang(ids, prompt, completion, **meta):
    """An SGLang response."""
    text = base64.b64encode(np.ascontiguousarray(ids, meta.pop("wire", "<i4")).tobytes()).decode()
    head = {"prompt_tokens": prompt, "completion_tokens": completion, "routed_experts": text}
    return {"meta_info": {**head, **meta}}


def envelope(ids, dtype, text=base64.b64encode, **more):
    """Bytes with a shape and a dtype."""
    data = text(np.ascontiguousarray(ids, dtype).tobytes()).decode()
    return {"data": data, "shape": list(ids.shape), "dtype": dtype, **more}


def record(routes, length=10):
    """A plain record."""
    return [{"length": length, "routed_experts": routes}]


COUNT = {"lengths": [10], "policy": "count"}
NONE: dict[str, Any] = {}
BIG = MoEModel(4, 512, 4)
WIDE = rows(9, experts=512, dtype=np.uint16)
LATE = MoEModel(7, 32, 4, (0, 1, 2))
ALL_LAYERS = np.concatenate([np.zeros((9, 3, 4), np.int32), IDS], axis=1)
BATCH = np.zeros((1, 16, 4, 4), np.int16)
BATCH[0, 3:12] = IDS
PADS = edit((0, slice(12, None)), np.arange(4), BATCH)
PADS[0, :3] = np.arange(4)


def mask(first, end):
    """An attention mask of 16 positions."""
    return (np.arange(16) >= first)[None] & (np.arange(16) < end)[None]


def slides(count, experts=32, layers=4, top_k=4):
    """Pads that count on from row to row modulo E."""
    return (np.arange(count * layers * top_k) % experts).reshape(count, layers, top_k)


REPORTS = [
    Report("sglang 20964: prefill alone has n rows", [rows(10)], kept=10),
    Report("sglang 20964: prefill alone drops the last token", [IDS], kept=9),
    Report("sglang 12162: buffer cut at the prompt", [IDS[:6]], "3 missing.*first: token 6"),
    Report(
        "sglang 12162: every output token has the same experts",
        [np.concatenate([IDS, np.repeat(IDS[:1], 90, axis=0)])],
        "identical rows in succession, found 90",
        options={"lengths": [100]},
    ),
    Report(
        "vllm 35623, 35626, 38943: first stages all zero",
        [edit((slice(None), slice(2)), 0)],
        r"layers \[0, 1\]",
    ),
    Report(
        "vllm 35623 under another policy", [edit((slice(None), slice(2)), 0)], "pipeline stage", options=COUNT
    ),
    Report("vllm 35744: rows lost, null arrives", [None], "9 missing"),
    Report("vllm 35744: counted as lost", [None], kept=0, lost={"missing": 9}, options=COUNT),
    Report("tpu-inference 3583: prompt rows all zero", [edit(slice(5), 0)], "5 filler.*first: token 0"),
    Report(
        "tpu-inference 3583: not credited to expert 0",
        [edit(slice(5), 0)],
        kept=4,
        lost={"filler": 5},
        counted=IDS[5:],
        options=COUNT,
    ),
    Report(
        "vllm 39568: stale rows after a cache transfer",
        [{**sglang(IDS, 4, 6), "kv_transfer_params": {"remote_engine_id": "a"}}],
        "kv_transfer_params.*stale",
        options=NONE,
    ),
    Report("nemo-rl 2590: cached rows omitted as -1", [edit(slice(2, 4), -1)], "2 missing.*first: token 2"),
    Report(
        "nemo-rl 2590: counted without them",
        [edit(slice(2, 4), -1)],
        kept=7,
        lost={"missing": 2},
        counted=np.delete(IDS, [2, 3], axis=0),
        options=COUNT,
    ),
    Report(
        "verl 7075: last token filled with expert 0",
        [np.concatenate([IDS, 0 * IDS[:1]])],
        kept=9,
        counted=IDS,
    ),
    Report(
        "verl 6029: resumed generations repeat all rows",
        [
            {
                "length": 10,
                "parts": [{"routed_experts": IDS[:4]}, {"routed_experts": IDS[:7]}, {"routed_experts": IDS}],
            }
        ],
        kept=9,
        counted=IDS,
        options=NONE,
    ),
    Report(
        "verl 6029: repeated rows joined by the sender",
        [np.concatenate([IDS[:4], IDS])],
        "at most 10 rows.*joined twice",
    ),
    Report(
        "sglang 24851: only rows from a start on",
        [sglang(IDS[4:], 4, 6, routed_experts_start_len=4)],
        kept=5,
        lost={"missing": 4},
        counted=IDS[4:],
        options={"policy": "count"},
    ),
    Report(
        "sglang 24851: the deltas of all turns",
        [
            {
                "length": 10,
                "parts": [sglang(IDS[:4], 3, 2), sglang(IDS[4:], 5, 5, routed_experts_start_len=4)],
            }
        ],
        "every part or for none",
        options=NONE,
    ),
    Report(
        "sglang 24851: the deltas of all turns with starts",
        [
            {
                "length": 10,
                "parts": [
                    sglang(IDS[s], 0, 0, routed_experts_start_len=s.start) for s in (slice(0, 4), slice(4, 9))
                ],
            }
        ],
        kept=9,
        counted=IDS,
        options=NONE,
    ),
    Report(
        "ms-swift 9799: text encoded again has another length", [IDS], "3 missing", options={"lengths": [13]}
    ),
    Report(
        "ms-swift 9799: lengths of caller and source disagree",
        record(IDS),
        "13 tokens, as lengths say, found 10",
        options={"lengths": [13]},
    ),
    Report(
        "slime 1052, 2308, miles 645, 2697, SkyRL 2091, prime-rl 3350, verl 7524: arange pads",
        {"routed_experts": PADS, "attention_mask": mask(3, 13)},
        kept=9,
        counted=IDS,
        options=NONE,
    ),
    Report(
        "nemo-rl 3208: arange rows inside a sample",
        [edit(slice(5, 8), np.arange(4))],
        kept=6,
        lost={"filler": 3},
        options=COUNT,
    ),
    Report(
        "slime 2308: pads that count on",
        [edit(slice(5, 8), slides(3))],
        kept=6,
        lost={"filler": 3},
        options=COUNT,
    ),
    Report(
        "prime-rl 3051: 512 experts say uint16",
        record(envelope(WIDE, "uint16")),
        kept=9,
        model=BIG,
        options=NONE,
    ),
    Report(
        "prime-rl 3051: 512 experts without dtype",
        record({k: v for k, v in envelope(WIDE, "uint16").items() if k != "dtype"}),
        "base64 of 144 bytes",
        model=BIG,
        options=NONE,
    ),
    Report("nemo-rl 4240: uint16 arrays", [WIDE], kept=9, counted=WIDE, model=BIG),
    Report(
        "nemo-rl 3113: ids wrapped to negative by int8",
        [(rows(9, experts=64) + 100).astype(np.uint8).view(np.int8)],
        "[1-9] corrupt",
        model=MoEModel(4, 200, 4),
    ),
    Report(
        "verl 5037, 5452: all layers, three dense ones first", [ALL_LAYERS], kept=9, counted=IDS, model=LATE
    ),
    Report("verl 5037, 5452: MoE layers alone", [IDS], kept=9, counted=IDS, model=LATE),
    Report(
        "prime-rl 1807: layer dimension of neither kind",
        [ALL_LAYERS[:, :6]],
        r"7 \(all decoder layers\) or 4 \(MoE layers only\), found 6",
        model=LATE,
    ),
    Report(
        "verifiers 1423: tokens truncated, routes not",
        [IDS],
        "at most 6 rows for 6 tokens",
        options={"lengths": [6]},
    ),
    Report(
        "sglang 31116, 31100: rows of all ranks gathered",
        [np.tile(IDS, (2, 1, 1))],
        "at most 10 rows for 10 tokens",
    ),
    Report(
        "dynamo 10529: base85 instead of base64",
        record(envelope(IDS, "int32", base64.b85encode)),
        kept=9,
        counted=IDS,
        options=NONE,
    ),
    Report(
        "dynamo 15114: start offset in the envelope",
        record(envelope(IDS[3:], "int32", start=3)),
        kept=6,
        lost={"missing": 3},
        options={"policy": "count"},
    ),
    Report(
        "tunix 2046: padded on the other side",
        {"routed_experts": BATCH, "attention_mask": mask(6, 16)},
        "filler outside the tokens.*misaligned",
        options=NONE,
    ),
    Report(
        "tunix 2046: side not said",
        {"routed_experts": BATCH},
        'side="left" and side="right" both fit',
        options={"lengths": [10]},
    ),
    Report(
        "SkyRL 1908: mask of another sample",
        [IDS],
        "mask of 9 rows",
        options={"lengths": [10], "mask": [[True] * 7]},
    ),
    Report(
        "SkyRL 1908: attention mask with a hole",
        {"routed_experts": BATCH, "attention_mask": mask(3, 13) & (np.arange(16) != 7)},
        "a gap at position 7",
        options=NONE,
    ),
]


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.name)
def test_report(report):
    if report.error:
        with pytest.raises(InputError, match=f"(?s){report.error}"):
            read(report.source, report.model, **report.options)
        return
    result = read(report.source, report.model, **report.options)
    total = result.report.total
    assert total["kept"] == report.kept
    assert {name: total[name] for name in ("missing", "filler", "corrupt") if total[name]} == report.lost
    if report.counted is not None:
        experts = report.model.experts
        expected = [np.bincount(report.counted[:, k].ravel(), minlength=experts) for k in range(4)]
        assert (result.counts[0] == expected).all()


def test_vllm_42593_a_dense_model_has_no_layer_to_read():
    with pytest.raises(InputError, match="at least one MoE layer"):
        MoEModel(32, 1, 1, range(32))


def test_xtuner_2046_slime_2385_nemo_rl_2826_nothing_is_widened_or_listed():
    ids = rows(2000, experts=512, dtype=np.uint16)
    read([ids], BIG, lengths=[2001])
    tracemalloc.start()
    read([ids], BIG, lengths=[2001])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < ids.nbytes


def test_xtuner_1794_fields_without_lists():
    counts = read([IDS], MODEL, lengths=[10]).counts
    assert isinstance(counts, np.ndarray)
    assert counts.dtype == np.int32
