"""Models exported to ONNX, every node in onnxruntime, held to the reference: clean ones, and one edit."""

import onnx
import pytest
import torch
from transformers import BertConfig, BertModel

import pytest_tfdebug.onnx
from models import ENCODER
from pytest_tfdebug import compare, trace


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    torch.manual_seed(0)
    sizes = {**ENCODER, "num_hidden_layers": 1}
    model = BertModel(BertConfig(**sizes, vocab_size=99, max_position_embeddings=32)).eval()
    inputs = {"input_ids": torch.arange(1, 9)[None] * 7 % 99, "attention_mask": torch.ones(1, 8, dtype=torch.int64)}
    path = tmp_path_factory.mktemp("onnx") / "bert.onnx"
    torch.onnx.export(model, (), kwargs=inputs, dynamo=True, verbose=False).save(str(path))
    return trace(model, **inputs), model, path, inputs


@pytest.mark.filterwarnings("ignore")
def test_exported_model_is_quiet(exported):
    recorded, _, path, inputs = exported

    report = compare(recorded, pytest_tfdebug.onnx.arrays(path, inputs))

    assert report.ok
    assert report.tensors > 30
    assert not report.uncompared


@pytest.mark.filterwarnings("ignore")
def test_edited_node_is_named_with_the_references_line(exported):
    recorded, _, path, inputs = exported
    proto = onnx.load(path)
    node = next(each for each in proto.graph.node if each.op_type == "Tanh")
    node.op_type = "Sigmoid"

    report = compare(recorded, pytest_tfdebug.onnx.arrays(proto, inputs))

    assert report.culprit.path == "pooler.activation"
    assert "modeling_bert.py" in report.first.label
