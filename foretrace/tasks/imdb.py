"""IMDB: classify a film review, read byte by byte, as positive or negative."""

import dataclasses
from pathlib import Path
from typing import ClassVar

import numpy as np

from foretrace._cells.parts import check_sizes
from foretrace._types import Array, Float
from foretrace.tasks._files import Arrays, DataDir, Source
from foretrace.tasks._formats import parquet_files, read_parquet
from foretrace.tasks._stored import AbstractPublicTask, Rows, one_hot


def _decode(paths: list[Path]) -> Arrays:
    """Read parquet files with the columns `text` and `label`.

    The result has the concatenated UTF-8 bytes of all reviews, the offset at which each review
    starts, and the labels.
    """
    texts, labels = [], []
    for path in paths:
        columns = read_parquet(path, ["text", "label"])
        texts += [text.encode() for text in columns["text"]]
        labels += columns["label"]
    offsets = np.concatenate([[0], np.cumsum([len(text) for text in texts])]).astype(np.int64)
    symbols = np.frombuffer(b"".join(texts), np.uint8)
    return {"symbols": symbols, "offsets": offsets, "labels": np.array(labels, np.uint8)}


_SOURCE = Source(
    name="IMDB",
    folder="imdb/plain_text",
    origin="the parquet files (plain_text, train and test) of the data set stanfordnlp/imdb on the "
    "Hugging Face hub",
    find=parquet_files,
    decode=_decode,
    files={
        "test-00000-of-00001.parquet": "85aad5d72d0a8e961e24c3ac3a217f128fbbe2e3ea8d320b6bede2f7b23161ba",  # noqa: E501
        "train-00000-of-00001.parquet": "d8a64ba039e0bf4aea0224804390a375451c57bc8622069c8fc901057d977631",  # noqa: E501
    },
    contents={
        "train": "d43082a780dbd9684a7289d1908c67d08b6d7be877e857eb150d30dc5259ee03",
        "test": "23af431bb6d73260a4b3bcd55c8b37d807c6344173d0a9eb12f07bd5cfc5a4bc",
    },
)


@dataclasses.dataclass(frozen=True)
class IMDB(AbstractPublicTask):
    """Sentiment of a review from its UTF-8 bytes, one-hot at each step and zero after the end.

    Args:
        max_length: maximum number of bytes that are read from the beginning of a review.
        samples: number of training reviews. Default: all 22,500 that are not in the validation
            split.
        data_dir: directory of the data. Default: the directory in `FORETRACE_DATA`.
        verify: whether to refuse files that differ from the public files.

    Raises:
        ValueError: a length is below one.

    Source: Maas et al., Learning word vectors for sentiment analysis, 2011; as bytes, Tay et al.,
        Long Range Arena, 2021. The paper's section 4.4.

    >>> task = IMDB()
    >>> task.input_size, task.output_size, task.length
    (256, 2, 4000)
    """

    max_length: int = 4000
    samples: int | None = None
    data_dir: DataDir = None
    verify: bool = True

    source: ClassVar[Source] = _SOURCE
    input_size: ClassVar[int] = 256  # values of a byte
    output_size: ClassVar[int] = 2

    def __post_init__(self) -> None:
        check_sizes("IMDB", max_length=self.max_length)

    @property
    def length(self) -> int:
        """Number of steps, the largest number of bytes that are read."""
        return self.max_length

    def inputs(self, rows: Rows) -> Float[Array, "B T I"]:
        """Return bytes as one-hot vectors."""
        return one_hot(rows, self.input_size)
