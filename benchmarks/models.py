# SPDX-License-Identifier: Apache-2.0
"""
Gradients of well-known networks: how large each tensor is, and how much of a step's work belongs to it.

As a program it prints them as C++ for hvd_perf, whose build includes that.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tensor:
    """One gradient. `work` counts multiplications per sample; only its share of the whole matters."""

    elements: int
    work: int


def convolution(kernel: int, inputs: int, outputs: int, side: int) -> Tensor:
    """`side` is that of the output."""
    elements = kernel * kernel * inputs * outputs
    return Tensor(elements, elements * side * side)


def small(*elements: int) -> list[Tensor]:
    """Biases and scales: next to no work."""
    return [Tensor(count, 0) for count in elements]


def dense(inputs: int, outputs: int, rows: int = 1) -> list[Tensor]:
    return [Tensor(inputs * outputs, inputs * outputs * rows), *small(outputs)]


def resnet50() -> list[Tensor]:
    """161 tensors in the order of the forward pass."""
    tensors = [convolution(7, 3, 64, 112), *small(64, 64)]
    inputs = 64
    for width, blocks, side in ((64, 3, 56), (128, 4, 28), (256, 6, 14), (512, 3, 7)):
        for block in range(blocks):
            outputs = 4 * width
            tensors += [convolution(1, inputs, width, side), *small(width, width)]
            tensors += [convolution(3, width, width, side), *small(width, width)]
            tensors += [convolution(1, width, outputs, side), *small(outputs, outputs)]
            if block == 0:
                tensors += [convolution(1, inputs, outputs, side), *small(outputs, outputs)]
            inputs = outputs
    return tensors + dense(2048, 1000)


def vgg16() -> list[Tensor]:
    """32 tensors, most of the elements in the three last layers, most of the work in the first."""
    tensors, inputs = [], 3
    for width, layers, side in ((64, 2, 224), (128, 2, 112), (256, 3, 56), (512, 3, 28), (512, 3, 14)):
        for _ in range(layers):
            tensors += [convolution(3, inputs, width, side), *small(width)]
            inputs = width
    return tensors + dense(25088, 4096) + dense(4096, 4096) + dense(4096, 1000)


def bert_base() -> list[Tensor]:
    """199 tensors; embeddings are looked up, not multiplied."""
    width, inner, tokens = 768, 3072, 128
    tensors = [*small(30522 * width, 512 * width, 2 * width), *small(width, width)]
    for _ in range(12):
        for _ in range(4):
            tensors += dense(width, width, tokens)
        tensors += small(width, width)
        tensors += dense(width, inner, tokens) + dense(inner, width, tokens) + small(width, width)
    return tensors + dense(width, width)


MODELS = {"ResNet-50": resnet50, "VGG-16": vgg16, "BERT-base": bert_base}
# What hvd_perf calls them.
WORDS = {"ResNet-50": "resnet50", "VGG-16": "vgg16", "BERT-base": "bert-base"}
# Time of compute for each time of communication. Assumed: about what a Pascal GPU with batches of 64 and its share of
# 25 Gbit/s had, with which 90 % and 68 % were published for networks like the first and the second.
RATIOS = {"ResNet-50": 4.0, "VGG-16": 1.2, "BERT-base": 2.0}


def ready_at(tensors: list[Tensor]) -> list[float]:
    """
    When each gradient is ready, as a share of the step's work, in the order of the backward pass (the last first).

    The forward pass is a third of the work, the backward pass two.
    """
    total = sum(tensor.work for tensor in tensors)
    done, shares = 0, []
    for tensor in reversed(tensors):
        done += tensor.work
        shares.append(1 / 3 + 2 / 3 * done / total)
    return shares


def as_cpp() -> str:
    """Initialisers of hvd_perf's struct Model, gradients in the order of the backward pass."""
    lines = ["// Made from benchmarks/models.py by the build."]
    for name, make in MODELS.items():
        tensors = make()
        lines.append(f'{{"{WORDS[name]}", {RATIOS[name]}, {{')
        lines += [f"  {{{t.elements}u, {share:.9f}}}," for t, share in zip(reversed(tensors), ready_at(tensors))]
        lines.append("}},")
    return "\n".join(lines)


if __name__ == "__main__":
    print(as_cpp())
