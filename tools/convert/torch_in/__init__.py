"""PyTorch in: a module, exported by torch.export, becomes a net with weights; what no layer computes is refused."""
