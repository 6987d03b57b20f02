import unittest

from ...test_modeling_common import ModelTesterMixin


class AlphaModelTest(ModelTesterMixin, unittest.TestCase):
    all_model_classes = ("AlphaModel",)

    @unittest.skip("Alpha has no cache")
    def test_cache(self):
        pass
