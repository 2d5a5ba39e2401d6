# SPDX-License-Identifier: Apache-2.0
"""Batch normalization over the batches of all ranks."""

from __future__ import annotations

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from horovod.common.basics import HorovodBasics
from horovod.torch.mpi_ops import Sum, allreduce

_size = HorovodBasics().size


class SyncBatchNorm(_BatchNorm):
    """
    `torch.nn.BatchNorm1d`, 2d and 3d with the moments of all ranks' batches, which may differ in size.

    Use it if the batches of each rank are small. All ranks must call the layer the same number of times.

    >>> import torch
    >>> import horovod.torch as hvd
    >>> hvd.init()
    >>> hvd.SyncBatchNorm(2)(torch.randn(4, 2)).shape
    torch.Size([4, 2])
    """

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"SyncBatchNorm: input has {input.dim()} dimensions: give 2 or more")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalize."""
        self._check_input_dim(input)
        of_batch = self.training or self.running_mean is None
        if not of_batch or _size() == 1:
            return super().forward(input)
        mean, variance, count = _moments_of_all_ranks(input)
        if self.training and self.track_running_stats:
            self._follow(mean.detach(), variance.detach(), count)
        shape = [1, -1] + [1] * (input.dim() - 2)
        scale = torch.rsqrt(variance + self.eps)
        if self.affine:
            scale = scale * self.weight
        normal = (input - mean.view(shape)) * scale.view(shape)
        return (normal + self.bias.view(shape) if self.affine else normal).to(input.dtype)

    def _follow(self, mean: torch.Tensor, variance: torch.Tensor, count: float) -> None:
        """Move the running moments, as torch.nn.BatchNorm does."""
        self.num_batches_tracked.add_(1)
        momentum = self.momentum if self.momentum is not None else 1.0 / float(self.num_batches_tracked)
        unbiased = variance * (count / max(count - 1.0, 1.0))
        for running, now in ((self.running_mean, mean), (self.running_var, unbiased)):
            running.mul_(1.0 - momentum).add_(now.to(running.dtype), alpha=momentum)

    @classmethod
    def convert_sync_batchnorm(cls, module: torch.nn.Module) -> torch.nn.Module:
        """Return the model with each of its layers torch.nn.BatchNorm in this class; they keep their parameters."""
        if isinstance(module, _BatchNorm) and not isinstance(module, cls):
            options = (module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats)
            converted = cls(*options)
            for name, value in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
                setattr(converted, name, value)
            converted.training = module.training
            return converted
        for name, child in module.named_children():
            setattr(module, name, cls.convert_sync_batchnorm(child))
        return module


def _moments_of_all_ranks(input: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, float]:
    """
    Return mean and variance of every channel, and how many values each has.

    One small exchange in float64: sums of squares of a rank are large beside their differences, and float32 would lose
    them. Its gradient is the sum of all ranks' gradients, because every rank's loss depends on every rank's inputs.
    """
    rows = input.numel() // input.shape[1] if input.shape[1] else 0
    axes = [0, *range(2, input.dim())]
    wide = input.double()
    sums, squares = wide.sum(axes), wide.square().sum(axes)
    own = torch.cat([sums, squares, sums.new_full((1,), float(rows))])
    total = allreduce(own, op=Sum)
    count = total[-1].item()
    sums, squares = total[:-1].view(2, -1)
    mean = sums / max(count, 1.0)
    variance = (squares / max(count, 1.0) - mean.square()).clamp(min=0.0)
    moments = torch.promote_types(input.dtype, torch.float32)
    return mean.to(moments), variance.to(moments), count
