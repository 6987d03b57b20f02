class ModelTesterMixin:
    def test_forward(self):
        raise NotImplementedError("what every model is tested for")

    def test_cache(self):
        raise NotImplementedError("what every model is tested for")
