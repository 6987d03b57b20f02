"""What a golden is said not to see: a bug that is planted there passes it."""

import pytest

import padding_models
from blind_spots import planted


@pytest.mark.parametrize(
    ("name", "fields"), [("llama", {"head_dim"}), ("gemma3", {"rms_norm_eps"}), ("qwen3", {"max_window_layers"})]
)
def test_bug_in_a_blind_spot_passes_the_golden_and_fails_elsewhere(name, fields):
    found = list(planted(*padding_models.build(name)))

    assert fields <= {each.spot.field for each in found}
    assert all(each.passes and each.fails for each in found)
