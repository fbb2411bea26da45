"""Functions that torch runs for us."""

import torch


def inlined(x):
    return x * 2


def root(x):
    return inlined(x) + 1


COMPILED = torch.compile(root, backend="eager")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.part(self.linear(x))

    def part(self, x):
        return inlined(x)


MODULE = torch.compile(Net(), backend="eager")


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return times_two(grad)


def times_two(grad):
    return grad * 2


def double(x):
    return Double.apply(x)


class Nested(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, depth):
        with torch.enable_grad():
            ctx.x = x.detach().requires_grad_()
            ctx.y = deep(ctx.x, depth - 1) if depth else leaf(ctx.x)
        return ctx.y.detach()

    @staticmethod
    def backward(ctx, grad):
        torch.autograd.backward(ctx.y, grad)
        return ctx.x.grad, None


class Leaf(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, grad):
        return grad * 3


def leaf(x):
    return Leaf.apply(x)


def deep(x, depth):
    return Nested.apply(x, depth)
