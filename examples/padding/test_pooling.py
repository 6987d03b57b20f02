import pytest
import pytest_tfdebug
import torch
from transformers import BertConfig, BertModel


class Embedder(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config, self.bert = config, BertModel(config)

    def forward(self, input_ids, attention_mask):
        hidden = self.bert(input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask[..., None].to(hidden.dtype)
        return (hidden * mask).sum(1) / mask.sum(1)


@pytest.mark.padding_invariant
def test_embeddings():
    config = BertConfig(vocab_size=99, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
    model = pytest_tfdebug.fill(Embedder(config).eval(), seed=0)
    input_ids = torch.arange(3, 15).view(2, 6)

    model(input_ids, attention_mask=torch.ones_like(input_ids))
