import torch
from lib import nets


def check_compiles():
    assert torch.equal(nets.COMPILED(torch.ones(2)), torch.full((2,), 3.0))


def check_runs_compiled():
    assert torch.equal(nets.COMPILED(torch.ones(2)), torch.full((2,), 3.0))


def check_compiled_module():
    assert nets.MODULE(torch.ones(1, 2)).shape == (1, 2)


def check_compiled_module_again():
    assert nets.MODULE(torch.ones(1, 2)).shape == (1, 2)


def check_backward():
    x = torch.ones(2, requires_grad=True)
    nets.double(x).sum().backward()
    assert torch.equal(x.grad, torch.full((2,), 2.0))


def check_deep_backward():
    # Beyond 60 nested calls autograd goes on in a thread of its own.
    x = torch.ones(1, requires_grad=True)
    nets.deep(x, 70).sum().backward()
    assert x.grad is not None


def check_no_torch_function():
    assert True
