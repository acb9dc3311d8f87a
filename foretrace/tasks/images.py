"""Images read pixel by pixel: sequential CIFAR-10 and sequential MNIST."""

import dataclasses
import io
from pathlib import Path
from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from foretrace._types import Array, Float
from foretrace.tasks._files import Arrays, DataDir, DataError, Source
from foretrace.tasks._formats import (
    import_extra,
    mnist_files,
    parquet_files,
    read_idx,
    read_parquet,
)
from foretrace.tasks._stored import AbstractPublicTask, Rows

# Statistics of all public training images, in units of the largest value.
_CIFAR_MEAN, _CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
_MNIST_MEAN, _MNIST_STD = 0.1307, 0.3081
_PERMUTATION = 92916


def _decode_cifar(paths: list[Path]) -> Arrays:
    """Return images (n, 32, 32, 3) and labels of parquet files with columns `img` and `label`."""
    image = import_extra("PIL.Image")
    images, labels = [], []
    for path in paths:
        columns = read_parquet(path, ["img", "label"])
        for cell in columns["img"]:
            images.append(np.asarray(image.open(io.BytesIO(cell["bytes"])).convert("RGB")))
        labels.append(np.array(columns["label"], np.uint8))
    symbols = np.stack(images)
    if symbols.shape[1:] != (32, 32, 3):
        raise DataError(f"CIFAR-10: images of shape {symbols.shape[1:]}, expected (32, 32, 3)")
    return {"symbols": symbols, "labels": np.concatenate(labels)}


def _decode_mnist(paths: list[Path]) -> Arrays:
    images, labels = map(read_idx, paths)
    if images.shape[1:] != (28, 28) or labels.shape != images.shape[:1]:
        raise DataError(
            f"MNIST: images of shape {images.shape} and labels of shape {labels.shape} do not fit"
        )
    return {"symbols": images, "labels": labels}


_CIFAR = Source(
    name="CIFAR-10",
    folder="cifar10/plain_text",
    origin="the parquet files (plain_text) of the data set uoft-cs/cifar10 on the Hugging Face hub",
    find=parquet_files,
    decode=_decode_cifar,
    files={
        "test-00000-of-00001.parquet": "ec46313b446bfc34932ba6386aab04c08d78a2aab98de0a6d54a4c836750942e",  # noqa: E501
        "train-00000-of-00005.parquet": "39d2023481bc456de4986e393b32ba68f5798105f2b63b69bf3bcb1f91daeee0",  # noqa: E501
        "train-00001-of-00005.parquet": "6c161f38c04be778908b46bd6cf3b13470cd3a5314360ba517c875d909b7b05b",  # noqa: E501
        "train-00002-of-00005.parquet": "8af7355e5e80063698abaca93e0e025c726855faccf46e94060a54be50aa418d",  # noqa: E501
        "train-00003-of-00005.parquet": "d4da21db8dca2d6f9f498bea8c8ad1d8c740439a82848163bc5edf9c83cb464b",  # noqa: E501
        "train-00004-of-00005.parquet": "f39630a4ac4b9bb2d53cc725cf7003fc2e84c048280077d2c507d9c2835324d8",  # noqa: E501
    },
    contents={
        "train": "2d78a7691e502ec31c887215820e75b0fdef40f53e1d9070fc0442301b0c9479",
        "test": "c59c81517bb838e8c5ced6f4bb4ba7971344b2bb0d066f889af9a2f47175e8d1",
    },
)

_MNIST = Source(
    name="MNIST",
    folder="mnist",
    origin="the four original idx files (train-images-idx3-ubyte and so on; .gz and .xz will do) "
    "of MNIST",
    find=mnist_files,
    decode=_decode_mnist,
    files={
        "t10k-images-idx3-ubyte.xz": "83565bb7769a99fc50e1facf8d134bbc8896afbb05c71f9ca7d4a8c50de0790f",  # noqa: E501
        "t10k-labels-idx1-ubyte.xz": "f2edae9ce0307abae4671a37b70e6e3858696b48b16c3cfdfef97388dc9925d5",  # noqa: E501
        "train-images-idx3-ubyte.xz": "d151f9ea64d64a8315a392275491d8de4b7a175eaf3f7c596b4597223a688e65",  # noqa: E501
        "train-labels-idx1-ubyte.xz": "db14ee4ce04c7f2006ebef1bc44e529435257977edf8f83181894465ba0a645f",  # noqa: E501
    },
    contents={
        "train": "4f22e76a444c35a03eafd134fca291a680113f2ea3428264818db350f2c1f056",
        "test": "288d805500aea2e4f177b1268b36ae775d97a66d9e1477801b2e119073b5c8d3",
    },
)


class AbstractImages(AbstractPublicTask):
    """Classification of images, read row by row, one pixel per step, and normalised.

    The normalisation uses the mean and deviation of the training images.
    """

    side: ClassVar[int]
    output_size: ClassVar[int] = 10

    pool: int

    @property
    def length(self) -> int:
        """Number of pixels."""
        return (self.side // self.pool) ** 2

    def __post_init__(self) -> None:
        if self.pool < 1 or self.side % self.pool:
            raise ValueError(f"pool={self.pool} must divide {self.side}, the side of an image")

    def _pooled(self, images: Float[Array, "B S S I"]) -> Float[Array, "B T I"]:
        size, channels, side = images.shape[0], images.shape[-1], self.side // self.pool
        blocks = images.reshape(size, side, self.pool, side, self.pool, channels)
        return blocks.mean(axis=(2, 4)).reshape(size, side * side, channels)


@dataclasses.dataclass(frozen=True)
class SequentialCIFAR10(AbstractImages):
    """Sequential CIFAR-10: 1,024 steps, each with the three colours of a pixel.

    Args:
        pool: side of the square blocks of pixels that are averaged. A sequence has 1,024 / pool²
            steps.
        samples: number of training images. Default: all 45,000 that are not in the validation
            split.
        data_dir: directory of the data. Default: the directory in `FORETRACE_DATA`.
        verify: whether to refuse files that differ from the public files.

    Raises:
        ValueError: 32 is not a multiple of `pool`.

    Source: Krizhevsky, Learning multiple layers of features from tiny images, 2009.

    >>> task = SequentialCIFAR10()
    >>> task.input_size, task.output_size, task.length
    (3, 10, 1024)
    """

    pool: int = 1
    samples: int | None = None
    data_dir: DataDir = None
    verify: bool = True

    side: ClassVar[int] = 32
    input_size: ClassVar[int] = 3  # colours
    source: ClassVar[Source] = _CIFAR

    def inputs(self, rows: Rows) -> Float[Array, "B T I"]:
        """Return normalised pixels."""
        images = jnp.asarray(rows.symbols).astype(jnp.float32) / 255
        mean, std = jnp.array(_CIFAR_MEAN, jnp.float32), jnp.array(_CIFAR_STD, jnp.float32)
        return self._pooled((images - mean[None, None, None]) / std[None, None, None])


@dataclasses.dataclass(frozen=True)
class SequentialMNIST(AbstractImages):
    """Sequential MNIST: 784 steps of one pixel, row by row or in one fixed random order.

    Args:
        permuted: whether to read the pixels in the fixed random order
            `numpy.random.RandomState(92916).permutation(784)`, which is common in the literature.
        pool: side of the square blocks of pixels that are averaged. A sequence has 784 / pool²
            steps.
        samples: number of training images. Default: all 54,000 that are not in the validation
            split.
        data_dir: directory of the data. Default: the directory in `FORETRACE_DATA`.
        verify: whether to refuse files that differ from the public files.

    Raises:
        ValueError: 28 is not a multiple of `pool`.

    Source: LeCun et al., Gradient-based learning applied to document recognition, 1998; as a
        sequence, Le et al., A simple way to initialize recurrent networks of rectified linear
        units, 2015.

    >>> task = SequentialMNIST(permuted=True)
    >>> task.input_size, task.output_size, task.length
    (1, 10, 784)
    """

    permuted: bool = False
    pool: int = 1
    samples: int | None = None
    data_dir: DataDir = None
    verify: bool = True

    side: ClassVar[int] = 28
    input_size: ClassVar[int] = 1  # a grey value
    source: ClassVar[Source] = _MNIST

    def inputs(self, rows: Rows) -> Float[Array, "B T I"]:
        """Return normalised pixels."""
        images = jnp.asarray(rows.symbols).astype(jnp.float32)[..., None] / 255
        xs = self._pooled((images - _MNIST_MEAN) / _MNIST_STD)
        return (
            xs[:, np.random.RandomState(_PERMUTATION).permutation(self.length)]
            if self.permuted
            else xs
        )
