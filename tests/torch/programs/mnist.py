# SPDX-License-Identifier: Apache-2.0
"""A program as users of horovod.torch write it: digits, with all its options; the data is made up."""

import argparse
import os

import horovod
import horovod.torch as hvd
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
import torch.utils.data.distributed


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, kernel_size=5)
        self.conv2_drop = nn.Dropout2d()
        self.fc1 = nn.Linear(4 * 12 * 12, 20)
        self.fc2 = nn.Linear(20, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv2_drop(self.conv1(x)), 2))
        x = F.relu(self.fc1(x.view(-1, 4 * 12 * 12)))
        x = F.dropout(x, training=self.training)
        return F.log_softmax(self.fc2(x), dim=1)


def metric_average(val, name):
    tensor = torch.tensor(val)
    avg_tensor = hvd.allreduce(tensor, name=name)
    return avg_tensor.item()


def data(rows):
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(0, 10, (rows,), generator=generator)
    images = torch.randn(rows, 1, 28, 28, generator=generator) * 0.1
    for image, label in zip(images, labels):
        image[0, int(label) * 2 : int(label) * 2 + 3] += 1
    return torch.utils.data.TensorDataset(images, labels)


def main(args):
    hvd.init()
    torch.manual_seed(args.seed)
    cuda = not args.no_cuda and torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(hvd.local_rank())
        torch.cuda.manual_seed(args.seed)
    torch.set_num_threads(1)

    kwargs = {"num_workers": 1, "multiprocessing_context": "forkserver"} if args.workers else {}
    train_dataset, test_dataset = data(512), data(128)
    train_sampler = torch.utils.data.distributed.DistributedSampler(
        train_dataset, num_replicas=hvd.size(), rank=hvd.rank()
    )
    train_loader = torch.utils.data.DataLoader(
        train_dataset, batch_size=args.batch_size, sampler=train_sampler, **kwargs
    )
    test_sampler = torch.utils.data.distributed.DistributedSampler(
        test_dataset, num_replicas=hvd.size(), rank=hvd.rank()
    )
    test_loader = torch.utils.data.DataLoader(test_dataset, batch_size=args.batch_size, sampler=test_sampler)

    model = Net()
    lr_scaler = hvd.size() if not args.use_adasum else 1
    if cuda:
        model.cuda()
        if args.use_adasum and hvd.nccl_built():
            lr_scaler = hvd.local_size()
    optimizer = optim.SGD(model.parameters(), lr=args.lr * lr_scaler, momentum=args.momentum)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=compression,
        op=hvd.Adasum if args.use_adasum else hvd.Average,
        gradient_predivide_factor=args.gradient_predivide_factor,
    )
    scaler = torch.amp.GradScaler("cpu") if args.use_mixed_precision else None

    for epoch in range(1, args.epochs + 1):
        model.train()
        train_sampler.set_epoch(epoch)
        for batch_idx, (images, target) in enumerate(train_loader):
            if cuda:
                images, target = images.cuda(), target.cuda()
            optimizer.zero_grad()
            if scaler is not None:
                with torch.amp.autocast("cpu", dtype=torch.bfloat16):
                    loss = F.nll_loss(model(images), target)
                scaler.scale(loss).backward()
                optimizer.synchronize()
                scaler.unscale_(optimizer)
                with optimizer.skip_synchronize():
                    scaler.step(optimizer)
                scaler.update()
            else:
                loss = F.nll_loss(model(images), target)
                loss.backward()
                optimizer.step()
            if batch_idx % args.log_interval == 0 and hvd.rank() == 0:
                done = 100.0 * batch_idx / len(train_loader)
                print(f"Train Epoch: {epoch} [{done:.0f}%]\tLoss: {loss.item():.6f}")

        model.eval()
        test_loss, test_accuracy = 0.0, 0.0
        with torch.no_grad():
            for images, target in test_loader:
                output = model(images)
                test_loss += F.nll_loss(output, target, reduction="sum").item()
                pred = output.data.max(1, keepdim=True)[1]
                test_accuracy += pred.eq(target.data.view_as(pred)).cpu().float().sum().item()
        test_loss /= len(test_sampler)
        test_accuracy /= len(test_sampler)
        test_loss = metric_average(test_loss, "avg_loss")
        test_accuracy = metric_average(test_accuracy, "avg_accuracy")
        if hvd.rank() == 0:
            print(f"Test set: Average loss: {test_loss:.4f}, Accuracy: {100.0 * test_accuracy:.2f}%")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--momentum", type=float, default=0.5)
    parser.add_argument("--no-cuda", action="store_true", default=False)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--log-interval", type=int, default=10)
    parser.add_argument("--fp16-allreduce", action="store_true", default=False)
    parser.add_argument("--use-mixed-precision", action="store_true", default=False)
    parser.add_argument("--use-adasum", action="store_true", default=False)
    parser.add_argument("--gradient-predivide-factor", type=float, default=1.0)
    parser.add_argument("--workers", action="store_true")
    parser.add_argument("--num-proc", type=int)
    parser.add_argument("--hosts")
    parser.add_argument("--communication")
    arguments = parser.parse_args()
    if arguments.num_proc:
        horovod.run(
            main,
            args=(arguments,),
            np=arguments.num_proc,
            hosts=arguments.hosts,
            use_gloo=arguments.communication == "gloo",
            use_mpi=arguments.communication == "mpi",
        )
    else:
        main(arguments)
    os.sys.stdout.flush()
