"""Classifies images with a network on each executor's GPU: `gpu_inference.py IMAGES PARTITIONS`.

Each task takes the GPU that Spark gave it, and fails where there is none: no CPU takes its place.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pandas as pd
import torch
from pyspark import TaskContext
from pyspark.sql import SparkSession
from torch import nn

SIDE, CLASSES, AT_ONCE = 32, 10, 1024


def network() -> nn.Module:
    """Always the same one: what a real job would load from its files."""
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(1024, CLASSES)),
    ).eval()


def classify(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """The class of each image, and which GPU found it."""
    context = TaskContext.get()
    assert context is not None
    device = torch.device(f"cuda:{context.resources()['gpu'].addresses[0]}")
    model, name = network().to(device), torch.cuda.get_device_name(device)
    for frame in frames:
        for start in range(0, len(frame), AT_ONCE):
            ids = frame["id"].iloc[start : start + AT_ONCE]
            images = torch.stack(
                [torch.rand(3, SIDE, SIDE, generator=torch.Generator().manual_seed(int(one))) for one in ids]
            )
            with torch.inference_mode():
                classes = model(images.to(device)).argmax(1).cpu().numpy()
            yield pd.DataFrame({"class": classes, "gpu": name})


def main() -> None:
    """Print how many images each GPU put into each class."""
    images, partitions = int(sys.argv[1]), int(sys.argv[2])
    spark = SparkSession.builder.getOrCreate()
    found = spark.range(0, images, 1, partitions).mapInPandas(classify, "class long, gpu string")
    for row in found.groupBy("gpu", "class").count().orderBy("gpu", "class").collect():
        print(f"{row['gpu']}: class {row['class']}: {row['count']} images", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
