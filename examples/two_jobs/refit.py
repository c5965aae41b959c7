"""Four ranks train, two generate: after every update the weights move from the trainers' layout to the servers'.

    torchrun --nproc-per-node 6 refit.py
"""
import torch
import torch.distributed as dist

import reshard

TRAINERS, SERVERS = "{dp:2,tp:2}", "{tp:2}@4"  # ranks 0 to 3, and ranks 4 and 5
WEIGHTS = [  # the trainers' layout, the servers' layout, and both in PyTorch, to compare with
    ("[<tp,dp>96, 32]", "[<tp>96, 32]", lambda w, dp, tp: w.chunk(2)[tp].chunk(2)[dp], lambda w, tp: w.chunk(2)[tp]),
    ("[<dp>32, <tp>32]", "[32, <tp>32]", lambda w, dp, tp: w.chunk(2)[dp].chunk(2, 1)[tp], lambda w, tp: w.chunk(2, 1)[tp]),
    ("[<dp>32, 1]", "[32, 1]", lambda w, dp, tp: w.chunk(2)[dp], lambda w, tp: w),
]
SHAPES = [(96, 32), (32, 32), (32, 1)]


def update(step):
    """The whole weights after a step, as if training had made them."""
    return [torch.full(shape, float(step)) + torch.arange(float(shape[0] * shape[1])).reshape(shape) / 10_000 for shape in SHAPES]


dist.init_process_group("gloo")
rank = dist.get_rank()
trains = rank < 4
# A rank holds nothing of tensors on the other job's mesh, but still takes part.
nothing = torch.empty(0)
weights = [trainer(w, *divmod(rank, 2)).clone() if trains else nothing for w, (_, _, trainer, _) in zip(update(0), WEIGHTS)]
served = [nothing if trains else torch.empty_like(server(w, rank - 4)) for w, (_, _, _, server) in zip(update(0), WEIGHTS)]

refit = reshard.bind(weights, served, TRAINERS, [source for source, *_ in WEIGHTS], [target for _, target, *_ in WEIGHTS],
                     target_mesh=SERVERS)
for step in range(1, 4):
    for whole, mine, (_, _, trainer, _) in zip(update(step), weights, WEIGHTS):
        if trains:
            mine.copy_(trainer(whole, *divmod(rank, 2)))
    refit.run()
    if not trains:
        for whole, mine, (_, _, _, server) in zip(update(step), served, WEIGHTS):
            assert torch.equal(mine, server(whole, rank - 4))
    if rank == 5:
        print(f"step {step}: rank 5 serves {[list(w.shape) for w in served]}, from {served[0][0, 0]:.4f} on")
dist.destroy_process_group()
