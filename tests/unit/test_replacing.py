import pytest

from pytest_tfdebug import GoldenError
from pytest_tfdebug.tracing.record.replacing import replace_atomically


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, OSError(28, "No space left on device")])
def test_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "t"
    path.write_text("old")

    def fill(temporary):
        with open(temporary, "w") as file:  # noqa: PTH123
            file.write("half")
        raise error

    with pytest.raises(GoldenError if isinstance(error, OSError) else error) as caught:
        replace_atomically(path, fill)

    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    if isinstance(error, OSError):
        assert str(caught.value) == f"{path} cannot be written: No space left on device."
